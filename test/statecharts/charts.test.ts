import { describe, expect, test } from 'vitest';
import type { AnyMachineSnapshot } from 'xstate';
import { CONDITIONS } from '#statecharts/readiness.js';
import { ignored, inlineBehaviour, leavesIn, leavesOf, reachable, unhandledInvokes } from './chart-walk.js';
import { WALKS } from './walks.js';

/**
 * Returns the readiness tags of a part in a snapshot, and the number of details for that part. The tests
 * require exactly one tag and one detail.
 */
function sayings(snapshot: AnyMachineSnapshot, part: string): { tags: string[]; details: number } {
  const tags = CONDITIONS.map((condition) => `${part}:${condition}`).filter((tag) => snapshot.hasTag(tag));
  const metas = Object.values(snapshot.getMeta()) as ({ part: string } | undefined)[];
  return { tags, details: metas.filter((meta) => meta?.part === part).length };
}

for (const [name, walks] of Object.entries(WALKS)) {
  describe(`the ${name} chart`, () => {
    const machine = walks[0]?.machine;
    if (machine === undefined) throw new RangeError(`no walk of ${name}`);
    const snapshots = walks.flatMap(reachable);

    test(`the ${name} chart refers to actions, guards, delays and actors only by name, and has no inline functions for them`, () => {
      expect(inlineBehaviour(machine)).toEqual([]);
    });

    test(`the ${name} chart has an id and an onError transition for every invoked actor`, () => {
      expect(unhandledInvokes(machine)).toEqual([]);
    });

    test(`the ${name} chart does not stop with an error after any event`, () => {
      expect(snapshots.filter(({ status }) => status === 'error').map(({ value }) => value)).toEqual([]);
    });

    test(`the ${name} chart reaches exactly the states that the snapshot file of this test lists`, () => {
      expect(leavesIn(snapshots)).toMatchSnapshot();
    });

    test(`the ${name} chart ignores public events only in the states that the snapshot file of this test lists`, () => {
      const events = walks[0]?.events ?? [];
      const regions = [...new Set(snapshots.flatMap(({ value }) => leavesOf(value)))].every((leaf) =>
        leaf.includes('.'),
      )
        ? Object.keys(machine.states).map((region) => `${region}.`)
        : [''];
      const found = regions.map((region) => [region, ignored(snapshots, region, events)]);
      expect(Object.fromEntries(found)).toMatchSnapshot();
    });

    for (const [region, part] of Object.entries(walks[0]?.regions ?? {})) {
      test(`the ${name} chart has exactly one readiness tag and detail for ${part} in every state`, () => {
        const wrong = snapshots
          .map((snapshot) => ({ value: snapshot.value, ...sayings(snapshot, part) }))
          .filter(({ tags, details }) => tags.length !== 1 || details !== 1);
        expect(wrong).toEqual([]);
        expect(region === '' || region in machine.states).toBe(true);
      });
    }
  });
}
