import { u8At } from '#arrays/read.js';
import { putU16, u16 } from '#dns/wire/bytes.js';

/** The SvcParamKeys that Weir reads or removes (RFC 9460, 14.3.2; RFC 9848, 3). */
const PARAMETER = { mandatory: 0, ipv4hint: 4, ech: 5, ipv6hint: 6 } as const;

/**
 * Checks the service parameters of an SVCB or HTTPS record (RFC 9460, 2.2), which begin at offset `from` of
 * `data`. Returns a fault code if the parameters are malformed, or else null.
 */
export function parametersFault(data: Uint8Array, from: number): string | null {
  let last = -1;
  for (let at = from; at < data.length; ) {
    if (at + 4 > data.length) return 'service_parameters';
    const key = u16(data, at);
    const length = u16(data, at + 2);
    at += 4 + length;
    if (at > data.length) return 'service_parameters';
    if (key <= last) return 'service_parameter_order';
    if (!fits(key, length)) return 'service_parameter_length';
    last = key;
  }
  return null;
}

function fits(key: number, length: number): boolean {
  if (key === PARAMETER.mandatory) return length > 0 && length % 2 === 0;
  if (key === PARAMETER.ipv4hint) return length > 0 && length % 4 === 0;
  if (key === PARAMETER.ipv6hint) return length > 0 && length % 16 === 0;
  return true;
}

/** Why a service parameter is removed: an address hint, or a key for Encrypted Client Hello. */
export type ParameterRemoval = 'hint' | 'ech';

/** The parameters that `withoutParameters` removes, each with its reason. */
const REMOVED: ReadonlyMap<number, ParameterRemoval> = new Map([
  [PARAMETER.ipv4hint, 'hint'],
  [PARAMETER.ech, 'ech'],
  [PARAMETER.ipv6hint, 'hint'],
]);

/**
 * Returns the reasons for which `withoutParameters` removes parameters from the data of an SVCB or HTTPS
 * record: each reason once.
 */
export function parameterRemovals(data: Uint8Array): readonly ParameterRemoval[] {
  const found: ParameterRemoval[] = [];
  for (let at = parametersAt(data); at + 4 <= data.length; at += 4 + u16(data, at + 2)) {
    const why = REMOVED.get(u16(data, at));
    if (why !== undefined && !found.includes(why)) found.push(why);
  }
  return found;
}

/**
 * Returns the data of an SVCB or HTTPS record without its address hints and its ECH keys. The keys of removed
 * parameters are also removed from the `mandatory` list, and an empty list is omitted. Otherwise clients
 * would ignore the record (RFC 9460, 8).
 */
export function withoutParameters(data: Uint8Array): Uint8Array {
  const from = parametersAt(data);
  const out = data.slice();
  let to = from;
  for (let at = from; at + 4 <= data.length; ) {
    const key = u16(data, at);
    const end = at + 4 + u16(data, at + 2);
    if (key === PARAMETER.mandatory) to = putMandatory(out, to, data, at + 4, end);
    else if (!REMOVED.has(key)) {
      out.set(data.subarray(at, end), to);
      to += end - at;
    }
    at = end;
  }
  return out.slice(0, to);
}

function putMandatory(out: Uint8Array, to: number, data: Uint8Array, from: number, end: number): number {
  let next = to + 4;
  for (let at = from; at + 2 <= end; at += 2) {
    const key = u16(data, at);
    if (REMOVED.has(key)) continue;
    putU16(out, next, key);
    next += 2;
  }
  if (next === to + 4) return to;
  putU16(out, to, PARAMETER.mandatory);
  putU16(out, to + 2, next - to - 4);
  return next;
}

function parametersAt(data: Uint8Array): number {
  let at = 2;
  while (at < data.length && u8At(data, at) > 0) at += u8At(data, at) + 1;
  return at + 1;
}
