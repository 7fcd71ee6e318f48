import type { Header, Headers } from '#policy/http-facts.js';
import type { HttpFault } from './fault.js';
import type { RawHead } from './head.js';
import { isSpace } from './octets.js';

/** How a body is delimited: by a number of bytes, by chunks, or by the end of the connection. */
export type Framing = number | 'chunked' | 'until_close';

/** The fields of a head: those that go on, and what the others say about this hop (RFC 9110, 7.6.1). */
export type Fields = {
  readonly list: Headers;
  /** The values of all Host fields. */
  readonly hosts: readonly string[];
  /** What the head itself says of its body; null: nothing. */
  readonly framing: number | 'chunked' | null;
  /** In lower case; all fields together. */
  readonly connection: readonly string[];
  readonly upgrade: readonly string[];
  readonly te: readonly string[];
  readonly expect: readonly string[];
};

export type Side = 'request' | 'response';

const NONE: readonly string[] = [];

export function readFields(head: RawHead, side: Side): Fields | HttpFault {
  return new FieldReading(head, side).fields();
}

class FieldReading {
  readonly #head: RawHead;
  readonly #isRequest: boolean;
  readonly #list: Header[] = [];
  #hosts: string[] | null = null;
  #length: string | null = null;
  #coding: string | null = null;
  #connection: string[] | null = null;
  #upgrade: string[] | null = null;
  #te: string[] | null = null;
  #expect: string[] | null = null;
  #fault: HttpFault | null = null;

  constructor(head: RawHead, side: Side) {
    this.#head = head;
    this.#isRequest = side === 'request';
  }

  fields(): Fields | HttpFault {
    const count = this.#head.lines.marks.length;
    for (let index = 0; index < count; index += 3) this.#take(fieldAt(this.#head, index));
    const framing = this.#framing();
    if (this.#fault !== null) return this.#fault;
    const connection = this.#connection ?? NONE;
    const list = withoutNamed(this.#list, connection);
    if (list === null) return 'connection_option';
    return {
      list,
      hosts: this.#hosts ?? NONE,
      framing,
      connection,
      upgrade: this.#upgrade ?? NONE,
      te: this.#te ?? NONE,
      expect: this.#expect ?? NONE,
    };
  }

  /** The names that mean something to this hop differ in length from nearly all others. */
  #take(field: Header): void {
    const [name, value] = field;
    switch (name.length) {
      case 2:
        if (name !== 'te') break;
        this.#te = options(this.#te, value);
        return;
      case 4:
        if (name !== 'host' || !this.#isRequest) break;
        if (this.#hosts === null) this.#hosts = [value];
        else this.#hosts.push(value);
        break;
      case 6:
        if (name !== 'expect' || !this.#isRequest) break;
        this.#expect = options(this.#expect, value);
        return;
      case 7:
        if (name !== 'upgrade') break;
        this.#upgrade = options(this.#upgrade, value);
        return;
      case 10:
        if (name === 'keep-alive') return;
        if (name !== 'connection') break;
        this.#connection = options(this.#connection, value);
        return;
      case 14:
        if (name === 'http2-settings') return;
        if (name !== 'content-length') break;
        if (this.#length !== null) this.#fault ??= 'repeated_content_length';
        this.#length = value;
        break;
      case 16:
        if (name === 'proxy-connection') return;
        break;
      case 17:
        if (name !== 'transfer-encoding') break;
        if (this.#coding !== null) this.#fault ??= 'transfer_encoding';
        this.#coding = value;
        return;
    }
    this.#list.push(field);
  }

  #framing(): number | 'chunked' | null {
    if (this.#coding !== null) {
      if (this.#coding.toLowerCase() !== 'chunked') this.#fault ??= 'transfer_encoding';
      if (this.#length !== null) this.#fault ??= 'conflicting_lengths';
      return 'chunked';
    }
    if (this.#length === null) return null;
    const length = readLength(this.#length);
    if (length === null) this.#fault ??= 'content_length';
    return length;
  }
}

/** The field whose places stand at `index` of the marks. */
export function fieldAt({ text, base, lines }: RawHead, index: number): Header {
  const { marks } = lines;
  const colon = (marks[index + 1] as number) - base;
  const sent = text.slice((marks[index] as number) - base, colon);
  return [sent.toLowerCase(), trimmed(text, colon + 1, (marks[index + 2] as number) - base), sent];
}

/** A Content-Length (RFC 9110, 8.6) as everyone reads it; null: it is none, has a zero before it, or is too great to count. */
export function readLength(text: string): number | null {
  if (!/^(0|[1-9][0-9]{0,15})$/.test(text)) return null;
  const length = Number(text);
  return Number.isSafeInteger(length) ? length : null;
}

/** What a Connection field names is of this hop; null: it names what is not (RFC 9110, 7.6.1). */
function withoutNamed(list: Headers, connection: readonly string[]): Headers | null {
  let kept = list;
  for (const option of connection) {
    if (option === 'keep-alive' || option === 'close' || option === 'upgrade') continue;
    if (option === 'host' || option === 'content-length') return null;
    kept = kept.filter(([name]) => name !== option);
  }
  return kept;
}

function options(before: string[] | null, value: string): string[] {
  const all = before ?? [];
  for (const part of value.toLowerCase().split(',')) {
    const option = trimmed(part, 0, part.length);
    if (option !== '') all.push(option);
  }
  return all;
}

/** Without spaces and tabs at its ends; other white space is a part of the value. */
function trimmed(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isSpace(text.charCodeAt(start))) start++;
  while (end > start && isSpace(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}
