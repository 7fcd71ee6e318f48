import { u8At } from '#arrays/read.js';
import { copyOf } from '#dns/wire/bytes.js';
import { TYPE } from '#dns/wire/dns-numbers.js';
import type { MessageCursor } from '#dns/wire/message/message-cursor.js';
import { type Layout, layoutOf } from '#dns/wire/message/message-layout.js';
import type { WireName } from '#dns/wire/name.js';
import { parametersFault } from './service-parameters.js';

/**
 * Reads the data of a record from the cursor to `end`, and decompresses names in the data. Returns null for a
 * fault.
 */
export function readData(cursor: MessageCursor, type: number, end: number): Uint8Array | null {
  const layout = layoutOf(type);
  if (layout !== undefined) return readNames(cursor, layout, type, end);
  const start = cursor.at;
  if ((type === TYPE.a && end - start !== 4) || (type === TYPE.aaaa && end - start !== 16)) {
    return cursor.fail('record_data_length');
  }
  cursor.at = end;
  return copyOf(cursor.bytes, start, end);
}

function readNames(cursor: MessageCursor, layout: Layout, type: number, end: number): Uint8Array | null {
  const start = cursor.at;
  const from = namesAt(cursor.bytes, start, end, layout);
  if (from < 0) return cursor.fail('record_data_length');
  cursor.at = from;
  const first = cursor.name(end, layout.pointers);
  if (first === null) return null;
  const second = layout.names > 1 ? cursor.name(end, layout.pointers) : null;
  if (layout.names > 1 && second === null) return null;
  const tail = end - cursor.at;
  if (layout.tail !== null && tail !== layout.tail) return cursor.fail('record_data_length');
  const data =
    from === start && second === null && tail === 0 ? first : concatenated(cursor, start, from, first, second, end);
  cursor.at = end;
  if (type === TYPE.svcb || type === TYPE.https) {
    const fault = parametersFault(data, from - start + first.length);
    if (fault !== null) return cursor.fail(fault);
  }
  return data;
}

function concatenated(
  { bytes, at }: MessageCursor,
  start: number,
  from: number,
  first: WireName,
  second: WireName | null,
  end: number,
): Uint8Array {
  const prefix = from - start;
  const names = first.length + (second === null ? 0 : second.length);
  const data = new Uint8Array(prefix + names + end - at);
  for (let index = 0; index < prefix; index++) data[index] = u8At(bytes, start + index);
  data.set(first, prefix);
  if (second !== null) data.set(second, prefix + first.length);
  for (let index = at, to = prefix + names; index < end; index++) data[to++] = u8At(bytes, index);
  return data;
}

/**
 * Returns the offset of the first name in record data, after the prefix and character strings of `layout`.
 * Returns -1 if that offset is beyond `end`.
 */
function namesAt(bytes: Uint8Array, start: number, end: number, layout: Layout): number {
  let at = start + layout.prefix;
  for (let string = 0; string < layout.strings && at < end; string++) at += 1 + u8At(bytes, at);
  return at < end ? at : -1;
}
