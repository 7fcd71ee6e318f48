import { expect, test } from 'vitest';
import { IPV4 } from '#analysis/engine/address-space.js';
import { type Compared, compare } from '#analysis/engine/comparison.js';
import type { Atom } from '#analysis/engine/conditions.js';
import { outcomeFor } from '#analysis/engine/decision-lists.js';
import type { HostnamePattern, Policy } from '#contracts/policy/policy-model.js';
import { matchesHostname } from '#policy/model/names/hostname.js';
import { seedOf } from '#test/seed.js';
import { packetGenerator } from '../policy/generate.js';
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

const outcomeOf = (policy: Policy, source: number, name: string, world: World) => {
  const verdict = decideLookupIn(policy, source, name, world);
  return verdict === 'audit' ? outcomeFor('deny', 'audit') : outcomeFor(verdict, 'enforce');
};

const changesFor = ({ lookups }: Compared, source: number) => {
  const found = lookups.filter(({ sources }) =>
    sources.spans.some(({ start, end }) => start <= source && source < end),
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

test('each change of a DNS lookup that the comparison states is confirmed by a walk, and no change is missed', () => {
  const seed = seedOf(4);
  const found = { changed: 0, confirmed: 0 };
  for (const { pair, random, before, after } of editedPairs(seed, PAIRS)) {
    const compared = compare(before, after, { spaces: [IPV4] });
    const { lookupConditions: conditions } = compared;
    const packet = packetGenerator(random, { ...before, groups: [...before.groups, ...after.groups] });
    for (let count = 0; count < 20; count++) {
      const { source } = packet();
      const name = random.pick(NAMES);
      const world = { ...randomWorld(random, [before, after]), names: [name] };
      const changes = changesFor(compared, source);
      const [from, to] = [before, after].map((policy) => outcomeOf(policy, source, name, world));
      const told = () => JSON.stringify({ pair, source, name, from, to, world: [...world.selectors], changes });
      if (from !== to) {
        found.changed++;
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
});
