import { u8At } from '#arrays/read.js';
import { copyOf, putU16, u16 } from '#dns/wire/bytes.js';
import { TYPE } from '#dns/wire/dns-numbers.js';

/** The EDNS values of an OPT record. `payload` is the UDP payload size in bytes, at least 512. */
export type Edns = {
  readonly payload: number;
  readonly version: number;
  readonly dnssecOk: boolean;
  readonly options: readonly EdnsOption[];
};

export type EdnsOption = { readonly code: number; readonly data: Uint8Array };

/** The size in bytes of an OPT record without options: root name, type, class, TTL and RDLENGTH. */
export const OPT_BYTES = 11;
const DNSSEC_OK = 0x8000;
/** A UDP payload size below 512 bytes counts as 512 (RFC 6891, 6.2.3). */
const LEAST_PAYLOAD = 512;
const NO_OPTIONS: readonly EdnsOption[] = Object.freeze([]);

/**
 * Parses the OPT record whose type field is at offset `at`. The bytes from `at` + 10 to `end` are the options
 * of the record. Returns null if the last option does not end exactly at `end`.
 */
export function readEdns(bytes: Uint8Array, at: number, end: number): Edns | null {
  const options = readOptions(bytes, at + 10, end);
  if (options === null) return null;
  return {
    payload: Math.max(LEAST_PAYLOAD, u16(bytes, at + 2)),
    version: u8At(bytes, at + 5),
    dnssecOk: (u8At(bytes, at + 6) & 0x80) !== 0,
    options,
  };
}

function readOptions(bytes: Uint8Array, from: number, end: number): readonly EdnsOption[] | null {
  if (from === end) return NO_OPTIONS;
  const options: EdnsOption[] = [];
  let at = from;
  while (at < end) {
    const start = at + 4;
    if (start > end) return null;
    const stop = start + u16(bytes, at + 2);
    if (stop > end) return null;
    options.push({ code: u16(bytes, at), data: copyOf(bytes, start, stop) });
    at = stop;
  }
  return options;
}

export function ednsBytes(options: readonly EdnsOption[]): number {
  let bytes = OPT_BYTES;
  for (const option of options) bytes += 4 + option.data.length;
  return bytes;
}

/**
 * Writes an OPT record into `out` at offset `at`. `rcode` is the complete extended rcode; the OPT record
 * contains only the upper eight bits of `rcode`.
 */
export function putEdns(
  out: Uint8Array,
  at: number,
  edns: { readonly payload: number; readonly version?: number; readonly options: readonly EdnsOption[] },
  dnssecOk: boolean,
  rcode: number,
): void {
  out[at] = 0;
  putU16(out, at + 1, TYPE.opt);
  putU16(out, at + 3, edns.payload);
  out[at + 5] = rcode >>> 4;
  out[at + 6] = edns.version ?? 0;
  putU16(out, at + 7, dnssecOk ? DNSSEC_OK : 0);
  putU16(out, at + 9, ednsBytes(edns.options) - OPT_BYTES);
  let to = at + OPT_BYTES;
  for (const option of edns.options) {
    putU16(out, to, option.code);
    putU16(out, to + 2, option.data.length);
    out.set(option.data, to + 4);
    to += 4 + option.data.length;
  }
}
