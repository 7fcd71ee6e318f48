import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { DENY_ONLY_MEMBER, type MembershipChange, type SelectorSet } from '#contracts/kubernetes/membership.js';
import type { Address, Selector } from '#contracts/policy/policy-model.js';
import { Memberships } from '#kubernetes/members/memberships.js';
import { expectEqual } from '#test/expect-equal.js';
import { Random, seedOf } from '#test/seed.js';
import { MembershipModel } from './membership-model.js';
import { RandomCluster, randomSelector, randomStep, SCOPES } from './random-cluster.js';

const DENY_ONLY: SelectorSet = { number: DENY_ONLY_MEMBER.number, keys: ['deny-only'] };

/** Applies membership changes as the datapath does, and checks that they follow the rules of the contract. */
class Consumer {
  readonly members = new Map<Address, SelectorSet>();
  readonly #sets = new Map<number, SelectorSet>([[DENY_ONLY_MEMBER.number, DENY_ONLY]]);
  readonly #dropped = new Set<number>();

  apply(changes: readonly MembershipChange[]): void {
    const less: boolean[] = [];
    for (const [index, change] of changes.entries()) {
      for (const set of change.added) this.#add(set);
      expectEqual(change.addresses.length > 0, true);
      for (const [at, address] of change.addresses.entries()) {
        const number = change.sets[at] ?? 0;
        const isLess = this.#isLess(address, number);
        less[index] ??= isLess;
        expectEqual(isLess, less[index]);
        this.#store(address, number);
      }
      for (const number of change.dropped) {
        expectEqual(
          [...this.members.values()].some((set) => set.number === number),
          false,
        );
        this.#sets.delete(number);
        this.#dropped.add(number);
      }
    }
    expect([[], [true], [false], [true, false]]).toContainEqual(less);
  }

  #add(set: SelectorSet): void {
    expectEqual(this.#sets.has(set.number) || this.#dropped.has(set.number), false);
    const texts = [...this.#sets.values()].map(({ keys }) => keys.join('\n'));
    expectEqual(texts.includes(set.keys.join('\n')), false);
    this.#sets.set(set.number, { number: set.number, keys: set.keys });
  }

  /** Whether the change takes a selector or the owner from the address. */
  #isLess(address: Address, number: number): boolean {
    const before = this.members.get(address);
    if (number === 0 || number === DENY_ONLY.number) return true;
    if (before === DENY_ONLY) return false;
    const after = this.#sets.get(number)?.keys ?? [];
    return before?.keys.some((key) => !after.includes(key)) === true;
  }

  #store(address: Address, number: number): void {
    const before = this.members.get(address)?.number ?? 0;
    expectEqual(number === before, false);
    if (number === 0) this.members.delete(address);
    else {
      const set = this.#sets.get(number);
      expectEqual(set === undefined, false);
      if (set !== undefined) this.members.set(address, set);
    }
  }
}

const keysOf = (members: ReadonlyMap<Address, SelectorSet>) =>
  new Map([...members].map(([address, { keys }]) => [address, keys]).sort() as [number, readonly string[]][]);
const sorted = (members: ReadonlyMap<Address, readonly string[]>) => new Map([...members].sort());

describe('memberships', () => {
  test('`Memberships` finds for each address the same selectors as a simple model after random messages', () => {
    let messages = 0;
    const property = fc.property(fc.integer(), fc.integer({ min: 1, max: 100 }), (seed, steps) => {
      messages += runSteps(new Random(seed), steps);
    });
    fc.assert(property, { seed: seedOf(24), numRuns: 600 });
    expect(messages).toBeGreaterThan(5_000);
  });
});

function runSteps(random: Random, steps: number): number {
  const memberships = new Memberships({ maxUnusedSets: random.pick([0, 4, 65_536]) });
  const model = new MembershipModel();
  const consumer = new Consumer();
  const clusters = new Map(['prod', 'test'].map((name) => [name, new RandomCluster(random)]));
  const made: readonly Selector[] = random.some(1, 12, () => randomSelector(random, random.pick(['prod', 'test'])));
  const pool = [...new Map(made.map((selector) => [selector.key, selector])).values()];
  let messages = 0;
  for (let step = 0; step < steps; step++) {
    const { name, cluster, of, choice } = randomStep(random, clusters, ['prod', 'prod', 'test']);
    if (choice < 45) cluster.change();
    else if (choice < 90) {
      const message = cluster.next(of);
      if (message !== undefined) {
        memberships.receive(name, of, message);
        model.tell(name, of, message);
        messages++;
      }
    } else if (choice < 93) cluster.cut(of);
    else if (choice < 95) {
      cluster.cut(of);
      memberships.endScope(name, of);
      model.tell(name, of, 'ended');
    } else if (choice < 96) cluster.restore();
    else if (choice < 97 && random.chance(0.3)) {
      for (const each of SCOPES) cluster.cut(each);
      memberships.remove(name);
      model.remove(name);
    } else {
      model.selectors = pool.filter(() => random.chance(0.7));
      memberships.setSelectors(model.selectors);
    }
    if (random.chance(0.4)) continue;
    consumer.apply(memberships.drainChanges());
    const expected = sorted(model.members());
    expectEqual(keysOf(consumer.members), expected);
    const list = memberships.list();
    const sets = new Map([...list.added, DENY_ONLY].map((set) => [set.number, set.keys]));
    const listed = [...list.addresses].map((address, at) => [address, sets.get(list.sets[at] ?? 0)] as const);
    expect(sorted(new Map(listed as [number, readonly string[]][]))).toEqual(expected);
    const counts = new Map<string, number>();
    for (const keys of expected.values())
      for (const key of keys) if (key !== 'deny-only') counts.set(key, (counts.get(key) ?? 0) + 1);
    expectEqual(new Map([...memberships.counts()].sort()), new Map([...counts].sort()));
  }
  return messages;
}
