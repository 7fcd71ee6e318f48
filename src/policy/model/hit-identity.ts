/**
 * Computes 64 bits in two lanes that identify a rule, a group default or a policy default permanently. The
 * kernel keeps hit counts under these identities over restarts and upgrades. If the algorithm changes, all
 * counts are lost.
 */
export class HitIdentity {
  /** Unsigned. */
  low = 0;
  high = 0;

  /** Starts the identity of an empty sequence of texts. */
  begin(): void {
    this.low = 0x9e37_79b9;
    this.high = 0x85eb_ca6b;
  }

  continueFrom(low: number, high: number): void {
    this.low = low;
    this.high = high;
  }

  /** Adds a text. `mark` separates the texts, and is a number that no UTF-16 code unit has. */
  text(text: string, mark: number): void {
    let { low, high } = this;
    for (let at = 0; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      low = Math.imul(low ^ unit, 0x9e37_79b1);
      high = Math.imul(high ^ unit, 0x5f35_6495);
      low ^= low >>> 15;
      high ^= high >>> 13;
    }
    this.low = Math.imul(low ^ mark, 0x9e37_79b1) >>> 0;
    this.high = Math.imul(high ^ mark, 0x5f35_6495) >>> 0;
  }

  /** Mixes the state over all bits, and writes the low and the high word. The low word is never 0. */
  write(words: Uint32Array, index: number): void {
    const low = mixed(this.low ^ Math.imul(this.high, 0x85eb_ca77));
    words[2 * index] = low || 1;
    words[2 * index + 1] = mixed(this.high ^ Math.imul(low, 0xc2b2_ae3d));
  }
}

/** A bijection of 32 bits in which every output bit depends on every input bit (MurmurHash3). */
export function mixed(word: number): number {
  let bits = word;
  bits = Math.imul(bits ^ (bits >>> 16), 0x85eb_ca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2_ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}
