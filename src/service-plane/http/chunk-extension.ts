import { CR, isTextOctet, isTokenOctet, SEMICOLON } from './octets.js';

const EQUALS = 0x3d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

const PLACE = { nameStart: 0, name: 1, valueStart: 2, value: 3, quoted: 4, escaped: 5, afterQuoted: 6 };

/**
 * Checks the extensions of a chunk (RFC 9112, 7.1.1) octet by octet, from the octet after the first `;`.
 * White space around `;` and `=` is a fault.
 */
export class ChunkExtension {
  #place = PLACE.nameStart;

  restart(): void {
    this.#place = PLACE.nameStart;
  }

  /** Returns true if `octet` is valid at the current position. A CR is valid where the extensions may end. */
  accepts(octet: number): boolean {
    switch (this.#place) {
      case PLACE.nameStart:
        return this.#go(isTokenOctet(octet), PLACE.name);
      case PLACE.name:
        if (isTokenOctet(octet)) return true;
        if (octet === EQUALS) return this.#go(true, PLACE.valueStart);
        return this.#end(octet);
      case PLACE.valueStart:
        if (octet === QUOTE) return this.#go(true, PLACE.quoted);
        return this.#go(isTokenOctet(octet), PLACE.value);
      case PLACE.value:
        return isTokenOctet(octet) || this.#end(octet);
      case PLACE.quoted:
        if (octet === QUOTE) return this.#go(true, PLACE.afterQuoted);
        return this.#go(isTextOctet(octet), octet === BACKSLASH ? PLACE.escaped : PLACE.quoted);
      case PLACE.escaped:
        return this.#go(isTextOctet(octet), PLACE.quoted);
      default:
        return this.#end(octet);
    }
  }

  #end(octet: number): boolean {
    return octet === CR || this.#go(octet === SEMICOLON, PLACE.nameStart);
  }

  #go(can: boolean, place: number): boolean {
    if (can) this.#place = place;
    return can;
  }
}
