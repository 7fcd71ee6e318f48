import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FLAG } from '#dns/wire/dns-numbers.js';
import { isResponseTo, type Message, type ResourceRecord, readMessage } from '#dns/wire/message/dns-message.js';
import { readQuery, writeQuery } from '#dns/wire/message/dns-query.js';
import { keyOf, labelsOf, nameOf, presentationOf } from '#dns/wire/name.js';
import { Random, seedOf } from '#test/seed.js';
import { checkAnswer, checkQuery, mutated, seedAnswers } from './fuzz/targets.js';
import { anyEdns, anyMessage, anyName } from './messages.js';
import { written } from './written.js';

/**
 * Converts the names in a record to lower case for the comparison, because compression may write a name in
 * the letter case of an earlier equal name.
 */
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

describe('DNS codec', () => {
  it('the DNS codec reads back an equal message from every message that it writes', () => {
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

  it('the DNS codec reads back an equal query from every query that it writes', () => {
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

  it('the DNS codec gives two names equal presentation forms if and only if the keys by which they are compared are equal', () => {
    fc.assert(
      fc.property(anyName, anyName, (one, other) => {
        expect(keyOf(nameOf(labelsOf(keyOf(one))))).toBe(keyOf(one));
        expect(presentationOf(keyOf(one)) === presentationOf(keyOf(other))).toBe(keyOf(one) === keyOf(other));
      }),
    );
  });

  it('the DNS codec returns for mutated bytes, within 500 ms of processor time each, a fault or a message that it can process further', () => {
    const random = new Random(seedOf(20_260_731));
    const seeds = seedAnswers(random.seed, 200);
    const outcomes = new Map<string, number>();
    let slowestUs = 0;
    for (let round = 0; round < 40_000; round++) {
      const bytes = mutated(random, random.pick(seeds));
      const started = process.cpuUsage();
      const outcome = checkAnswer(bytes);
      const { user, system } = process.cpuUsage(started);
      slowestUs = Math.max(slowestUs, user + system);
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
      checkQuery(bytes);
    }
    for (const outcome of outcomes.keys()) expect(outcome).toMatch(/^[a-z_]+$/);
    expect(outcomes.size).toBeGreaterThan(12);
    expect(outcomes.get('message')).toBeGreaterThan(1000);
    expect(slowestUs / 1_000).toBeLessThan(500);
  });
});
