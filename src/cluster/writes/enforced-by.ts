import { setTimeout as pause } from 'node:timers/promises';
import type { PolicyOutcome } from '#contracts/policy/policy-write.js';

/** The members that a write waits for: more than half of them, or all. */
type Wait = 'quorum' | 'all';
type Enforcing = { readonly id: string; readonly generation: number };

const POLL_MS = 50;
const MAX_WAIT_MS = 10_000;

/**
 * Waits until members of a cluster enforce the generation of a write, at most `mostMs`. The write is
 * committed already, so a late member does not make it fail. The outcome gets the warning `nodes_behind` if
 * members are late, or if members were lost during the wait. `members` reads the members and the generations
 * that they enforce; null if they cannot be read.
 */
export async function enforcedBy(
  outcome: PolicyOutcome,
  wait: Wait,
  members: () => Promise<readonly Enforcing[] | null>,
  mostMs: number = MAX_WAIT_MS,
): Promise<PolicyOutcome> {
  if (outcome.kind !== 'written' && outcome.kind !== 'deleted') return outcome;
  let atFirst: readonly Enforcing[] = [];
  const warned = (message: string): PolicyOutcome => ({
    ...outcome,
    warnings: [...outcome.warnings, { pointer: '', code: 'nodes_behind', message }],
  });
  for (const until = performance.now() + mostMs; ; await pause(POLL_MS)) {
    const all = (await members()) ?? [];
    if (atFirst.length === 0) atFirst = all;
    const late = all.filter(({ generation }) => generation < outcome.generation);
    const isEnforced = all.length > 0 && (wait === 'all' ? late.length === 0 : late.length * 2 < all.length);
    const left = atFirst.filter(({ id }) => !all.some((member) => member.id === id));
    if (isEnforced && wait === 'all' && left.length > 0)
      return warned(`These nodes left the cluster before they enforced the policy: ${namesOf(left)}.`);
    if (isEnforced) return outcome;
    if (performance.now() < until) continue;
    const names = all.length === 0 ? 'the members cannot be read' : namesOf(late);
    return warned(`The policy is committed, and these nodes do not enforce it yet: ${names}.`);
  }
}

const namesOf = (members: readonly Enforcing[]): string => members.map(({ id }) => id).join(', ');
