import { CLASS, TYPE } from '#dns/wire/dns-numbers.js';
import { nameOf } from '#dns/wire/name.js';

/** A record in wire form. `length` is the length field, which may differ from the length of `data`. */
export type RawRecord = {
  readonly name?: Uint8Array;
  readonly type?: number;
  readonly class?: number;
  readonly ttl?: number;
  readonly length?: number;
  readonly data?: Uint8Array;
};

type Raw = {
  readonly id?: number;
  readonly flags?: number;
  readonly question?: Uint8Array;
  readonly type?: number;
  readonly class?: number;
  readonly counts?: readonly [number, number, number, number];
  readonly answers?: readonly RawRecord[];
  readonly authorities?: readonly RawRecord[];
  readonly additionals?: readonly RawRecord[];
  readonly rest?: Uint8Array;
};

/** Encodes a name such as `www.example.com` in wire form. An empty string is the root name. */
export function name(text: string): Uint8Array {
  return nameOf(text === '' ? [] : text.split('.'));
}

export function pointer(offset: number): Uint8Array {
  return u16s(0xc000 | offset);
}

export function u16s(...values: readonly number[]): Uint8Array {
  return Uint8Array.from(values.flatMap((value) => [value >>> 8, value & 255]));
}

export function u32s(...values: readonly number[]): Uint8Array {
  return u16s(...values.flatMap((value) => [value >>> 16, value & 0xffff]));
}

export function concatenated(...parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

/**
 * Encodes a message, which may be malformed. By default the question is `www.example.com` A at offset 12, and
 * the first record is at offset 33.
 */
export function messageBytes(raw: Raw): Uint8Array {
  const { answers = [], authorities = [], additionals = [], question = name('www.example.com') } = raw;
  const counts = raw.counts ?? [1, answers.length, authorities.length, additionals.length];
  return concatenated(
    u16s(raw.id ?? 7, raw.flags ?? 0x8180, ...counts),
    question,
    u16s(raw.type ?? TYPE.a, raw.class ?? CLASS.in),
    ...[...answers, ...authorities, ...additionals].map(recordBytes),
    raw.rest ?? new Uint8Array(0),
  );
}

function recordBytes(record: RawRecord): Uint8Array {
  const data = record.data ?? Uint8Array.of(192, 0, 2, 1);
  return concatenated(
    record.name ?? pointer(12),
    u16s(record.type ?? TYPE.a, record.class ?? CLASS.in),
    u32s(record.ttl ?? 60),
    u16s(record.length ?? data.length),
    data,
  );
}
