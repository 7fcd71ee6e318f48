import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { withoutUnenforceable } from '#dns/wire/filter.js';
import { addressesOf, keepsFor } from '#dns/wire/lookup.js';
import { isResponseTo, type Message, type ResourceRecord, readMessage } from '#dns/wire/message.js';
import { keyOf, labelsOf, nameOf, presentationOf } from '#dns/wire/name.js';
import { FLAG } from '#dns/wire/numbers.js';
import { readQuery, writeQuery } from '#dns/wire/query.js';
import { respond, respondError, templateOf } from '#dns/wire/response.js';
import { Random, seedOf } from '#test/seed.js';
import { anyEdns, anyMessage, anyName } from './messages.js';

const written = (message: Message): Uint8Array => {
  const { id, flags, question, edns } = message;
  const query = { id, flags: flags | FLAG.ad, opcode: 0, key: keyOf(question.name), edns, ...question };
  return respond(templateOf(message), query, { ageSeconds: 0, limit: 65_535, edns });
};

/** Compression may spell a name like an earlier one. */
const lowered = (record: ResourceRecord): unknown => ({
  ...record,
  name: keyOf(record.name),
  data: loweredData(record),
});
const loweredData = ({ data }: ResourceRecord): string => Buffer.from(data).toString('latin1').toLowerCase();

const folded = (message: Message): unknown => ({
  ...message,
  answers: message.answers.map(lowered),
  authorities: message.authorities.map(lowered),
  additionals: message.additionals.map(lowered),
});

describe('the codec', () => {
  it('reads back every message that it writes', () => {
    fc.assert(
      fc.property(anyMessage, (message) => {
        const read = readMessage(written(message));
        if ('fault' in read) throw new Error(read.fault);
        expect(folded(read)).toEqual(folded(message));
        expect(written(read)).toEqual(written(message));
        expect(isResponseTo(read, { id: message.id, ...message.question })).toBe(true);
      }),
      { numRuns: 300 },
    );
  });

  it('reads back every query that it writes', () => {
    const bits = fc.record({
      recursionDesired: fc.boolean(),
      checkingDisabled: fc.boolean(),
      authenticData: fc.boolean(),
    });
    const number = fc.nat(65_535);
    fc.assert(
      fc.property(number, anyName, number, number, bits, fc.option(anyEdns), (id, name, type, of, flags, edns) => {
        const [rd, cd, ad] = [flags.recursionDesired, flags.checkingDisabled, flags.authenticData];
        const word = (rd ? FLAG.rd : 0) | (cd ? FLAG.cd : 0) | (ad ? FLAG.ad : 0);
        const query = { id, flags: word, opcode: 0, name, key: keyOf(name), type, class: of, edns };
        expect(readQuery(writeQuery({ id, name, type, class: of, ...flags, edns }))).toEqual(query);
      }),
    );
  });

  it('keeps the labels of every name apart', () => {
    fc.assert(
      fc.property(anyName, anyName, (one, other) => {
        expect(keyOf(nameOf(labelsOf(keyOf(one))))).toBe(keyOf(one));
        expect(presentationOf(keyOf(one)) === presentationOf(keyOf(other))).toBe(keyOf(one) === keyOf(other));
      }),
    );
  });

  it('answers mutated bytes with a fault or a message that it can work on, soon', () => {
    const random = new Random(seedOf(20_260_731));
    const seeds = fc.sample(anyMessage, { seed: random.seed, numRuns: 200 }).map(written);
    const outcomes = new Map<string, number>();
    let slowestMs = 0;
    for (let round = 0; round < 40_000; round++) {
      const bytes = mutated(random, random.pick(seeds));
      const started = performance.now();
      const read = readMessage(bytes);
      if (!('fault' in read)) workOn(read);
      slowestMs = Math.max(slowestMs, performance.now() - started);
      const outcome = 'fault' in read ? read.fault : 'message';
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
      const query = readQuery(bytes);
      if ('fault' in query && query.id !== null) respondError({ ...query, id: query.id }, query.rcode);
    }
    for (const outcome of outcomes.keys()) expect(outcome).toMatch(/^[a-z_]+$/);
    expect(outcomes.size).toBeGreaterThan(12);
    expect(outcomes.get('message')).toBeGreaterThan(1000);
    expect(slowestMs).toBeLessThan(500);
  });
});

function workOn(message: Message): void {
  const odd = (address: number): boolean => (address & 1) === 1;
  const { addresses, chain } = addressesOf(message);
  const { message: left } = withoutUnenforceable(message, odd);
  const again = withoutUnenforceable(left, odd);
  const read = readMessage(templateOf(left).bytes);
  const sound =
    addresses.length <= message.answers.length &&
    chain.length <= 17 &&
    keepsFor(message) >= 0 &&
    again.message === left &&
    !('fault' in read) &&
    read.answers.length === left.answers.length;
  if (!sound) throw new Error(Buffer.from(templateOf(message).bytes).toString('hex'));
}

function mutated(random: Random, seed: Uint8Array): Uint8Array {
  const bytes = Uint8Array.from(seed);
  for (let count = random.between(1, 4); count > 0; count--) {
    const at = random.below(bytes.length);
    if (random.chance(0.3)) {
      bytes[at] = 0xc0;
      if (at + 1 < bytes.length) bytes[at + 1] = random.below(bytes.length);
    } else bytes[at] = random.chance(0.5) ? random.below(256) : (bytes[at] as number) ^ (1 << random.below(8));
  }
  if (random.chance(0.1)) return bytes.subarray(0, random.below(bytes.length));
  return bytes;
}
