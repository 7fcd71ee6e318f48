import { itemAt } from '#arrays/read.js';
import type { Header, Headers } from '#contracts/service-plane/http-facts.js';
import type { RawHead } from '#service-plane/http/http1/head.js';
import type { HttpFault } from './fault.js';
import { isSpace } from './octets.js';

/**
 * How the end of a body is determined: by a number of bytes, by chunked coding, or by the end of the
 * connection (`until_close`).
 */
export type Framing = number | 'chunked' | 'until_close';

/**
 * The fields of a message head. `list` contains the fields that are forwarded. The other members contain the
 * values of Host, Expect, the length fields and hop-by-hop fields (RFC 9110, 7.6.1).
 */
export type Fields = {
  readonly list: Headers;
  /** The values of all Host fields of the request. */
  readonly hosts: readonly string[];
  /** The body length or chunked coding that the head declares; null if the head declares neither. */
  readonly framing: number | 'chunked' | null;
  /** The options of all Connection fields, in lower case. */
  readonly connection: readonly string[];
  readonly upgrade: readonly string[];
  readonly te: readonly string[];
  readonly expect: readonly string[];
};

export type Side = 'request' | 'response';

export function readFields(head: RawHead, side: Side): Fields | HttpFault {
  const said: HopFacts = { ...NO_HOP_FACTS };
  const list: Header[] = [];
  const names: string[] = [];
  const count = head.lines.marks.length;
  for (let index = 0; index < count; index += 3) {
    const field = fieldAt(head, index);
    names.push(field[0]);
    if (isForwarded(field, said, side)) list.push(field);
  }
  if (side === 'request' && areAmbiguous(names)) said.fault ??= 'ambiguous_names';
  const framing = framingOf(said);
  if (said.fault !== null) return said.fault;
  const kept = withoutNamed(list, said.connection);
  if (kept === null) return 'connection_option';
  const { hosts, connection, upgrade, te, expect } = said;
  return { list: kept, hosts, framing, connection, upgrade, te, expect };
}

type HopFacts = {
  hosts: readonly string[];
  length: string | null;
  coding: string | null;
  connection: readonly string[];
  upgrade: readonly string[];
  te: readonly string[];
  expect: readonly string[];
  fault: HttpFault | null;
};

const NONE: readonly string[] = [];
const KEPT_ALIVE: readonly string[] = ['keep-alive'];
const NO_HOP_FACTS: HopFacts = {
  hosts: NONE,
  length: null,
  coding: null,
  connection: NONE,
  upgrade: NONE,
  te: NONE,
  expect: NONE,
  fault: null,
};

/**
 * Records in `said` the value of a Host, Expect, length or hop-by-hop field. Returns true if the field is
 * forwarded. The switch uses the name length, which is fast because few other names have these lengths.
 */
function isForwarded([name, value]: Header, said: HopFacts, side: Side): boolean {
  switch (name.length) {
    case 2:
      if (name !== 'te') return true;
      said.te = options(said.te, value);
      return false;
    case 4:
      if (name === 'host' && side === 'request') said.hosts = [...said.hosts, value];
      return true;
    case 6:
      if (name !== 'expect' || side !== 'request') return true;
      said.expect = options(said.expect, value);
      return false;
    case 7:
      if (name !== 'upgrade') return true;
      said.upgrade = options(said.upgrade, value);
      return false;
    case 10:
      if (name === 'connection') said.connection = options(said.connection, value);
      return name !== 'connection' && name !== 'keep-alive';
    case 14:
      if (name === 'content-length') {
        if (said.length !== null) said.fault ??= 'repeated_content_length';
        said.length = value;
      }
      return name !== 'http2-settings';
    case 16:
      return name !== 'proxy-connection';
    case 17:
      if (name !== 'transfer-encoding') return true;
      if (said.coding !== null) said.fault ??= 'transfer_encoding';
      said.coding = value;
      return false;
    default:
      return true;
  }
}

function framingOf(said: HopFacts): number | 'chunked' | null {
  if (said.coding !== null) {
    if (said.coding.toLowerCase() !== 'chunked') said.fault ??= 'transfer_encoding';
    if (said.length !== null) said.fault ??= 'conflicting_lengths';
    return 'chunked';
  }
  if (said.length === null) return null;
  const length = readLength(said.length);
  if (length === null) said.fault ??= 'content_length';
  return length;
}

/**
 * Returns true if two different names become equal when `-` is replaced by `_`. CGI gateways make this
 * replacement.
 */
export function areAmbiguous(names: readonly string[]): boolean {
  if (!names.some((name) => name.includes('_'))) return false;
  const different = new Set(names);
  return new Set([...different].map((name) => name.replaceAll('_', '-'))).size < different.size;
}

/** Returns the field whose positions (name, colon, end) begin at `index` in `lines.marks`. */
export function fieldAt({ text, lower, base, lines }: RawHead, index: number): Header {
  const { marks } = lines;
  const colon = itemAt(marks, index + 1) - base;
  const start = itemAt(marks, index) - base;
  const value = trimmed(text, colon + 1, itemAt(marks, index + 2) - base);
  return [lower.slice(start, colon), value, text.slice(start, colon)];
}

/**
 * Returns the number in a Content-Length field (RFC 9110, 8.6). Returns null for texts that parsers could
 * read differently: no decimal number, a leading zero, or a number above the safe integers.
 */
export function readLength(text: string): number | null {
  if (!/^(0|[1-9][0-9]{0,15})$/.test(text)) return null;
  const length = Number(text);
  return Number.isSafeInteger(length) ? length : null;
}

/**
 * Removes the fields that a Connection field names, because these fields are hop-by-hop. Returns null if a
 * Connection field names Host or Content-Length, which are never hop-by-hop (RFC 9110, 7.6.1).
 */
function withoutNamed(list: Headers, connection: readonly string[]): Headers | null {
  if (connection === KEPT_ALIVE) return list;
  let kept = list;
  for (const option of connection) {
    if (option === 'keep-alive' || option === 'close' || option === 'upgrade') continue;
    if (option === 'host' || option === 'content-length') return null;
    kept = kept.filter(([name]) => name !== option);
  }
  return kept;
}

function options(before: readonly string[], value: string): readonly string[] {
  if (before.length === 0 && value.toLowerCase() === 'keep-alive') return KEPT_ALIVE;
  const more = value
    .toLowerCase()
    .split(',')
    .map((part) => trimmed(part, 0, part.length))
    .filter((option) => option !== '');
  return before.length === 0 ? more : [...before, ...more];
}

/** Removes spaces and tabs at both ends. Other white space belongs to the value. */
function trimmed(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isSpace(text.charCodeAt(start))) start++;
  while (end > start && isSpace(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}
