import fc from 'fast-check';
import type { Address } from '#contracts/policy/policy-model.js';
import { type Message, readMessage } from '#dns/wire/message/dns-message.js';
import { readQuery, writeQuery } from '#dns/wire/message/dns-query.js';
import { respondError, templateOf } from '#dns/wire/message/response.js';
import { addressesOf, cacheSecondsOf } from '#dns/wire/records/address-chain.js';
import { withoutUnenforceable } from '#dns/wire/records/record-filter.js';
import type { Target } from '#test/fuzz-campaign.js';
import type { Random } from '#test/seed.js';
import { anyEdns, anyMessage, anyName } from '../messages.js';
import { written } from '../written.js';

const SEEDS = 500;

export function targetsOf(seed: number): ReadonlyMap<string, Target> {
  const answers = seedAnswers(seed, SEEDS);
  const queries = fc
    .sample(fc.tuple(fc.nat(65_535), anyName, fc.nat(65_535), fc.option(anyEdns)), { seed, numRuns: SEEDS })
    .map(([id, name, type, edns]) =>
      writeQuery({ id, name, type, class: 1, recursionDesired: true, checkingDisabled: false, edns }),
    );
  return new Map([
    ['answers', { make: (random) => mutated(random, random.pick(answers)), check: checkAnswer }],
    ['queries', { make: (random) => mutated(random, random.pick(queries)), check: checkQuery }],
  ]);
}

export function seedAnswers(seed: number, count: number): Uint8Array[] {
  return fc.sample(anyMessage, { seed, numRuns: count }).map(written);
}

/**
 * Reads an answer. Returns the fault, or `message` if the codec could read and process the answer. Throws if
 * a property that `workOn` checks is violated.
 */
export function checkAnswer(bytes: Uint8Array): string {
  const read = readMessage(bytes);
  if ('fault' in read) return read.fault;
  workOn(read);
  return 'message';
}

/**
 * Checks that a valid query keeps its name, type and class when it is written and read again, and that the
 * codec can make an error response to an invalid query with an id.
 */
export function checkQuery(bytes: Uint8Array): void {
  const query = readQuery(bytes);
  if ('fault' in query) {
    if (query.id !== null) respondError({ ...query, id: query.id }, query.rcode);
    return;
  }
  const [recursionDesired, checkingDisabled] = [(query.flags & 0x0100) !== 0, (query.flags & 0x0010) !== 0];
  const again = readQuery(writeQuery({ ...query, recursionDesired, checkingDisabled }));
  if ('fault' in again || again.key !== query.key || again.type !== query.type || again.class !== query.class) {
    throw new Error('a query is not what it was');
  }
}

export function mutated(random: Random, seed: Uint8Array): Uint8Array {
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

function workOn(message: Message): void {
  for (const grantsIpv6 of [false, true]) filterWith(message, grantsIpv6);
}

function filterWith(message: Message, grantsIpv6: boolean): void {
  const odd = (address: Address): boolean => (BigInt(address) & 1n) === 1n;
  const { addresses, chain } = addressesOf(message);
  const { message: left } = withoutUnenforceable(message, odd, undefined, undefined, grantsIpv6);
  const again = withoutUnenforceable(left, odd, undefined, undefined, grantsIpv6);
  const read = readMessage(templateOf(left).bytes);
  const sound =
    addresses.length <= message.answers.length &&
    chain.length <= 17 &&
    cacheSecondsOf(message) >= 0 &&
    again.message === left &&
    !('fault' in read) &&
    read.answers.length === left.answers.length;
  if (!sound) throw new Error(Buffer.from(templateOf(message).bytes).toString('hex'));
}
