import { itemAt, u8At } from '#arrays/read.js';
import type { HttpFault } from '#service-plane/http/fault.js';
import { COLON, CR, isSpace, LF, textEnd, tokenEnd } from '#service-plane/http/octets.js';

const MAX_FIELDS = 256;

const STAGE = {
  before: 0,
  beforeLf: 1,
  first: 2,
  start: 3,
  startLf: 4,
  line: 5,
  name: 6,
  value: 7,
  valueLf: 8,
  endLf: 9,
};

export type Begin = 'request' | 'response' | 'trailers';
const BEGIN: Readonly<Record<Begin, number>> = { request: STAGE.before, response: STAGE.first, trailers: STAGE.line };

/**
 * Finds the lines of text in a message head or a trailer section (RFC 9112, 2.2 and 5). A scan continues at
 * the position where the previous scan stopped. Only CRLF ends a line of text. The scan returns the fault of
 * the first invalid octet. The division of the bytes into chunks does not change the result.
 */
export class LineScanner {
  /** The position in the buffer where the scan stopped. */
  at = 0;
  /** The positions in the buffer where the start line begins (`start`) and ends (`startEnd`). */
  start = 0;
  startEnd = 0;
  /** Three positions in the buffer for each field: its name, its colon, and the CR at its end. */
  readonly marks: number[] = [];
  readonly #begin: number;
  #stage: number;

  constructor(begin: Begin) {
    this.#begin = BEGIN[begin];
    this.#stage = this.#begin;
  }

  restart(at: number): void {
    this.at = at;
    this.start = at;
    this.marks.length = 0;
    this.#stage = this.#begin;
  }

  /** Subtracts `by` from all positions, because the bytes have moved to another buffer. */
  shift(by: number): void {
    this.at -= by;
    this.start -= by;
    this.startEnd -= by;
    for (let index = 0; index < this.marks.length; index++) this.marks[index] = itemAt(this.marks, index) - by;
  }

  /**
   * Scans `bytes` up to position `end`. Returns `done` at the end of the head, a fault, or null if more bytes
   * are needed.
   */
  scan(bytes: Uint8Array, end: number): 'done' | HttpFault | null {
    const { marks } = this;
    let at = this.at;
    let stage = this.#stage;
    while (at < end) {
      switch (stage) {
        case STAGE.line: {
          const octet = u8At(bytes, at);
          if (octet === CR) {
            at++;
            stage = STAGE.endLf;
            break;
          }
          if (isSpace(octet)) return marks.length === 0 ? 'leading_space' : 'obs_fold';
          if (marks.length === 3 * MAX_FIELDS) return 'too_many_fields';
          marks.push(at);
          stage = STAGE.name;
          break;
        }
        case STAGE.name:
          at = tokenEnd(bytes, at, end);
          if (at === end) break;
          if (bytes[at] !== COLON) return nameFault(u8At(bytes, at));
          if (at === marks[marks.length - 1]) return 'field_name';
          marks.push(at++);
          stage = STAGE.value;
          break;
        case STAGE.value:
          at = textEnd(bytes, at, end);
          if (at === end) break;
          if (bytes[at] !== CR) return textFault(u8At(bytes, at));
          marks.push(at++);
          stage = STAGE.valueLf;
          break;
        case STAGE.start:
          at = textEnd(bytes, at, end);
          if (at === end) break;
          if (bytes[at] !== CR) return textFault(u8At(bytes, at));
          this.startEnd = at++;
          stage = STAGE.startLf;
          break;
        case STAGE.endLf:
          if (bytes[at] !== LF) return 'bare_cr';
          this.at = at + 1;
          return 'done';
        case STAGE.before:
          // RFC 9112, 2.2: skip one empty line before a request.
          if (bytes[at] === CR) {
            at++;
            stage = STAGE.beforeLf;
          } else {
            stage = STAGE.first;
          }
          break;
        case STAGE.first:
          if (bytes[at] === CR || isSpace(u8At(bytes, at))) {
            return this.#begin === STAGE.before ? 'request_line' : 'status_line';
          }
          this.start = at;
          stage = STAGE.start;
          break;
        default:
          if (bytes[at] !== LF) return 'bare_cr';
          at++;
          stage = stage === STAGE.beforeLf ? STAGE.first : STAGE.line;
      }
    }
    this.at = at;
    this.#stage = stage;
    return null;
  }
}

function nameFault(octet: number): HttpFault {
  if (isSpace(octet)) return 'space_before_colon';
  if (octet === LF) return 'bare_lf';
  return octet === 0 ? 'nul' : 'field_name';
}

function textFault(octet: number): HttpFault {
  if (octet === LF) return 'bare_lf';
  return octet === 0 ? 'nul' : 'control_character';
}
