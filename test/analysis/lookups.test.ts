import { expect, test } from 'vitest';
import { familyOf, formatAddress } from '#addresses/ip-address.js';
import { type AddressSpace, IPV4, IPV6 } from '#analysis/engine/address-space.js';
import { type Compared, compare } from '#analysis/engine/comparison.js';
import type { Atom } from '#analysis/engine/conditions.js';
import { outcomeFor } from '#analysis/engine/decision-lists.js';
import type { Address, HostnamePattern, Policy } from '#contracts/policy/policy-model.js';
import { matchesHostname } from '#policy/model/names/hostname.js';
import { seedOf } from '#test/seed.js';
import { packetsOf } from './check-comparison.js';
import { editedPairs } from './edits.js';
import { decideLookupIn, holdsIn, randomWorld, type World } from './world.js';

const PAIRS = Number(process.env.WEIR_PAIRS ?? 150);
const NAMES = [
  'api.example.com',
  'www.example.com',
  'www1.example.com',
  'a.b.example.com',
  'zz.example.com',
  'other.org',
  'www1.test',
];

const outcomeOf = (policy: Policy, source: Address, name: string, world: World) => {
  const verdict = decideLookupIn(policy, source, name, world);
  return verdict === 'audit' ? outcomeFor('deny', 'audit') : outcomeFor(verdict, 'enforce');
};

const changesFor = ({ lookups }: Compared, source: Address) => {
  const found = lookups.filter(
    ({ sources: { space, spans } }) =>
      space.family === familyOf(source) && spans.some(({ start, end }) => start <= source && source < end),
  );
  expect(found.length).toBeLessThan(2);
  return found[0]?.changes ?? [];
};

const patternsOf = (atoms: readonly Atom[]): HostnamePattern[] =>
  atoms.flatMap((atom) => (atom.kind === 'name' ? [atom.pattern] : []));

/** Returns the world of the lookup of one name in which exactly these atoms hold. */
const exactWorld = (atoms: readonly Atom[], name: string): World => ({
  names: [name],
  denyOnly: atoms.some(({ kind }) => kind === 'deny_only'),
  selectors: new Map(
    atoms.flatMap((atom) => (atom.kind === 'selected' || atom.kind === 'unresolved' ? [[atom.key, atom.kind]] : [])),
  ),
  blocks: new Map(),
});

test.each<[families: string, spaces: readonly AddressSpace[]]>([
  ['IPv4', [IPV4]],
  ['both families', [IPV4, IPV6]],
])(
  'each change of a DNS lookup from a source of %s that the comparison states is confirmed by a walk, and no change is missed',
  (_families, spaces) => {
    const seed = seedOf(4);
    const found = { changed: 0, confirmed: 0, ipv6: 0 };
    for (const { pair, random, before, after } of editedPairs(seed, PAIRS, {
      families: spaces.map(({ family }) => family),
    })) {
      const compared = compare(before, after, { spaces });
      const { lookupConditions: conditions } = compared;
      const ofPair = { ...before, groups: [...before.groups, ...after.groups] };
      const packets = spaces.map((space) => packetsOf(random, ofPair, space).edge);
      for (let count = 0; count < 20; count++) {
        const { source } = random.pick(packets)();
        const name = random.pick(NAMES);
        const world = { ...randomWorld(random, [before, after]), names: [name] };
        const changes = changesFor(compared, source);
        const [from, to] = [before, after].map((policy) => outcomeOf(policy, source, name, world));
        const told = () =>
          JSON.stringify({ pair, source: formatAddress(source), name, from, to, world: [...world.selectors], changes });
        if (from !== to) {
          found.changed++;
          if (typeof source === 'bigint') found.ipv6++;
          const isStated = changes.some(
            (change) =>
              change.from.outcome === from &&
              change.to.outcome === to &&
              conditions.describe(change.condition).every((atom) => holdsIn(world, atom)),
          );
          if (!isStated) throw new Error(`a change is missed: ${told()}`);
        }
        for (const change of changes) {
          const atoms = conditions.describe(change.condition);
          const patterns = patternsOf(atoms);
          const names = NAMES.filter((one) => patterns.every((pattern) => matchesHostname(pattern, one)));
          if (names.length === 0) throw new Error(`no name has all patterns: ${told()}`);
          const closed = [...(conditions.closure(conditions.atomsOf(change.condition)) ?? [])];
          const holding = patternsOf(closed.flatMap((atom) => conditions.describe(conditions.allOf([atom]))));
          const texts = new Set(holding.map(({ text }) => text));
          const rules = [before, after].flatMap(({ groups }) => groups.flatMap((group) => group.rules));
          const isExact = (one: string) =>
            rules.every(
              ({ hostname }) => hostname === undefined || !matchesHostname(hostname, one) || texts.has(hostname.text),
            );
          for (const one of names.filter(isExact)) {
            found.confirmed++;
            const real = [before, after].map((policy) => outcomeOf(policy, source, one, exactWorld(atoms, one)));
            if (real[0] !== change.from.outcome || real[1] !== change.to.outcome)
              throw new Error(`a stated change is wrong for ${one}: ${told()}`);
          }
        }
      }
    }
    expect(Math.min(found.changed, found.confirmed)).toBeGreaterThan(PAIRS);
    expect(found.ipv6).toBeGreaterThan(spaces.length === 1 ? -1 : PAIRS / 3);
  },
);
