import { itemAt, u8At } from '#arrays/read.js';
import { putU16, putU32, u16 } from '#dns/wire/bytes.js';
import { FLAG, HEADER_BYTES, OPTION, RCODE } from '#dns/wire/dns-numbers.js';
import type { Message } from './dns-message.js';
import type { Query, QueryFault } from './dns-query.js';
import { type EdnsOption, ednsBytes, OPT_BYTES, putEdns } from './edns.js';
import { MessageWriter } from './writer.js';

/**
 * The content of a response that is equal for all clients.
 * - `bytes`: header, question and records with compressed names; the id is 0, and there is no OPT record.
 * - `ttls`: the TTLs of the records in seconds, as received.
 * - `ttlOffsets`: the offset of each of these TTLs in `bytes`.
 */
export type Template = {
  readonly bytes: Uint8Array;
  readonly ttlOffsets: readonly number[];
  readonly ttls: readonly number[];
  readonly rcode: number;
};

type ResponseEdns = { readonly payload: number; readonly options: readonly EdnsOption[] };

/**
 * `limit`: the maximum length in bytes; a longer response is cut after its question and gets the TC bit.
 * `ttlCap`: the maximum TTL, in seconds, of the records in the response.
 */
export type ResponseOptions = {
  readonly ageSeconds: number;
  readonly limit: number;
  readonly edns: ResponseEdns | null;
  readonly ttlCap?: number;
};

/** Options of an error response. `extendedError` is sent only if the query has an OPT record (RFC 8914). */
export type ErrorResponseOptions = {
  readonly edns?: ResponseEdns;
  readonly extendedError?: { readonly code: number; readonly text: string };
};

/** The largest response, in bytes, that every client accepts over UDP (RFC 1035, 4.2.1). */
const LEAST_LIMIT = 512;
const DEFAULT_EDNS: ResponseEdns = { payload: 1232, options: [] };

/**
 * Builds the template of a response. The template has RA set and AA clear; AD and TC are copied from
 * `message`. A template above 65,535 bytes is replaced by a SERVFAIL.
 */
export function templateOf(message: Message): Template {
  const { question, answers, authorities, additionals } = message;
  const writer = new MessageWriter(question.name, question.type, question.class);
  writer.records(answers);
  writer.records(authorities);
  writer.records(additionals);
  if (writer.overflown) {
    return templateOf({ ...message, flags: 0, rcode: RCODE.servfail, answers: [], authorities: [], additionals: [] });
  }
  const flags = FLAG.qr | FLAG.ra | (message.flags & (FLAG.ad | FLAG.tc)) | (message.rcode & 15);
  return {
    bytes: writer.bytes(flags, answers.length, authorities.length, additionals.length),
    ttlOffsets: writer.ttlOffsets,
    ttls: writer.ttls,
    rcode: message.rcode,
  };
}

/**
 * Builds the response to one query. The id, the RD and CD bits and the letter case of the question are those
 * of the query. The TTLs are reduced by `ageSeconds`. The response has the AD bit only if the query has the
 * AD or DO bit, and an OPT record only if the query has an OPT record.
 */
export function respond(template: Template, query: Query, options: ResponseOptions): Uint8Array {
  const { bytes } = template;
  const { name } = query;
  const questionEnd = HEADER_BYTES + name.length + 4;
  if (u16(bytes, questionEnd - 4) !== query.type || bytes[questionEnd - 5] !== 0) {
    throw new Error(
      'build a DNS response: the template (the response that all clients share) has another question than the query',
    );
  }
  let edns = query.edns === null ? null : options.edns;
  let opt = edns === null ? 0 : ednsBytes(edns.options);
  const whole = bytes.length + opt <= options.limit;
  const end = whole ? bytes.length : questionEnd;
  if (edns !== null && end + opt > options.limit) {
    edns = { payload: edns.payload, options: [] };
    opt = OPT_BYTES;
  }
  const out = Buffer.allocUnsafe(end + opt);
  out.set(whole ? bytes : bytes.subarray(0, end));
  for (let at = 0; at < name.length; at++) out[HEADER_BYTES + at] = u8At(name, at);
  if (whole) putTtls(out, template, options);
  else out.fill(0, 6, HEADER_BYTES);
  const authentic = (query.flags & FLAG.ad) !== 0 || query.edns?.dnssecOk === true;
  const flags = (u16(bytes, 2) & (authentic ? 0xfff0 : 0xfff0 & ~FLAG.ad)) | (whole ? 0 : FLAG.tc);
  return finished(out, end, query, flags, template.rcode, edns);
}

function putTtls(out: Uint8Array, template: Template, { ageSeconds, ttlCap }: ResponseOptions): void {
  if (ageSeconds < 1 && ttlCap === undefined) return;
  const { ttls, ttlOffsets } = template;
  const age = Math.floor(ageSeconds);
  const cap = ttlCap ?? 0xffff_ffff;
  for (let index = 0; index < ttls.length; index++) {
    const left = itemAt(ttls, index) - age;
    putU32(out, itemAt(ttlOffsets, index), left < 0 ? 0 : left < cap ? left : cap);
  }
}

/**
 * Builds a response with an error and no records. The response to a malformed query has no question, because
 * the proxy could not read the question reliably. Such a response has an OPT record only if its rcode needs
 * an OPT record (BADVERS).
 */
export function respondError(
  query: Query | (QueryFault & { readonly id: number }),
  rcode: number,
  options: ErrorResponseOptions = {},
): Uint8Array {
  const faulty = 'fault' in query;
  const wanted = faulty ? rcode > 15 : query.edns !== null;
  const end = faulty ? HEADER_BYTES : HEADER_BYTES + query.name.length + 4;
  let edns = wanted ? withError(options.edns ?? DEFAULT_EDNS, options.extendedError) : null;
  if (edns !== null && end + ednsBytes(edns.options) > LEAST_LIMIT) edns = { payload: edns.payload, options: [] };
  const out = Buffer.alloc(end + (edns === null ? 0 : ednsBytes(edns.options)));
  if (!faulty) {
    out[5] = 1;
    out.set(query.name, HEADER_BYTES);
    putU16(out, end - 4, query.type);
    putU16(out, end - 2, query.class);
  }
  return finished(out, end, query, FLAG.qr | FLAG.ra, rcode, edns);
}

function withError(edns: ResponseEdns, error: ErrorResponseOptions['extendedError']): ResponseEdns {
  if (error === undefined) return edns;
  const data = new Uint8Array([error.code >>> 8, error.code & 255, ...Buffer.from(error.text, 'utf8')]);
  return { payload: edns.payload, options: [...edns.options, { code: OPTION.extendedError, data }] };
}

const ECHOED = FLAG.rd | FLAG.cd | 0x7800;

function finished(
  out: Uint8Array,
  end: number,
  query: Query | (QueryFault & { readonly id: number }),
  flags: number,
  rcode: number,
  edns: ResponseEdns | null,
): Uint8Array {
  putU16(out, 0, query.id);
  // Without an OPT record, an rcode above 15 becomes SERVFAIL: only an OPT record has room for the upper bits
  // of an rcode (RFC 6891, 6.1.3).
  const low = edns === null && rcode > 15 ? RCODE.servfail : rcode & 15;
  putU16(out, 2, flags | (query.flags & ECHOED) | low);
  if (edns === null) return out;
  putU16(out, 10, u16(out, 10) + 1);
  putEdns(out, end, edns, 'edns' in query && query.edns?.dnssecOk === true, rcode);
  return out;
}
