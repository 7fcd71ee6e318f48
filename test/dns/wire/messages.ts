import fc from 'fast-check';
import { CLASS, TYPE } from '#dns/wire/dns-numbers.js';
import type { Message, ResourceRecord } from '#dns/wire/message/dns-message.js';
import type { Edns } from '#dns/wire/message/edns.js';
import { nameOf } from '#dns/wire/name.js';
import { concatenated, u16s } from './message-bytes.js';

const anyLabel = fc.uint8Array({ minLength: 1, maxLength: 20 }).map((bytes) => Buffer.from(bytes).toString('latin1'));
const label = fc.oneof({ weight: 4, arbitrary: fc.constantFrom('www', 'WWW', 'example', 'a', 'com') }, anyLabel);
export const anyName = fc.array(label, { maxLength: 6 }).map(nameOf);
const bytes = (minLength: number, maxLength: number): fc.Arbitrary<Uint8Array> =>
  fc.uint8Array({ minLength, maxLength });

const of = (type: number, ...parts: readonly fc.Arbitrary<Uint8Array>[]): fc.Arbitrary<[number, Uint8Array]> =>
  fc.tuple(...parts).map((all) => [type, concatenated(...all)]);
const parameters = fc
  .uniqueArray(fc.integer({ min: 7, max: 300 }), { maxLength: 4 })
  .map((keys) => concatenated(...keys.sort((x, y) => x - y).map((key) => concatenated(u16s(key, 2), u16s(key)))));

const typed = fc.oneof(
  of(TYPE.a, bytes(4, 4)),
  of(TYPE.aaaa, bytes(16, 16)),
  of(TYPE.cname, anyName),
  of(TYPE.ns, anyName),
  of(TYPE.ptr, anyName),
  of(TYPE.dname, anyName),
  of(TYPE.mx, bytes(2, 2), anyName),
  of(TYPE.soa, anyName, anyName, bytes(20, 20)),
  of(TYPE.rp, anyName, anyName),
  of(TYPE.px, bytes(2, 2), anyName, anyName),
  of(TYPE.srv, bytes(6, 6), anyName),
  of(TYPE.naptr, bytes(4, 4), fc.constant(Uint8Array.of(1, 0x55, 0, 2, 3, 4)), anyName),
  of(TYPE.rrsig, bytes(18, 18), anyName, bytes(0, 80)),
  of(TYPE.nsec, anyName, bytes(0, 8)),
  of(TYPE.https, bytes(2, 2), anyName, parameters),
  of(TYPE.txt, bytes(0, 90)),
  of(65_280, bytes(0, 90)),
);

const record: fc.Arbitrary<ResourceRecord> = fc
  .tuple(anyName, typed, fc.constantFrom(CLASS.in, CLASS.ch), fc.nat(0x7fff_ffff))
  .map(([name, [type, data], of, ttl]) => ({ name, type, class: of, ttl, data }));

export const anyEdns: fc.Arbitrary<Edns> = fc.record({
  payload: fc.integer({ min: 512, max: 65_535 }),
  version: fc.constant(0),
  dnssecOk: fc.boolean(),
  options: fc.array(fc.record({ code: fc.nat(65_535), data: bytes(0, 20) }), { maxLength: 3 }),
});

/**
 * A fast-check arbitrary of responses with the opcode QUERY and random records, without the flags AA and TC.
 */
export const anyMessage: fc.Arbitrary<Message> = fc.record({
  id: fc.nat(65_535),
  flags: fc.constantFrom(0x8080, 0x8190, 0x81a0),
  rcode: fc.constant(0),
  question: fc.record({ name: anyName, type: fc.nat(65_535), class: fc.constantFrom(CLASS.in, CLASS.ch) }),
  answers: fc.array(record, { maxLength: 6 }),
  authorities: fc.array(record, { maxLength: 3 }),
  additionals: fc.array(record, { maxLength: 3 }),
  edns: fc.option(anyEdns),
});
