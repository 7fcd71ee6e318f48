import type { Assertion, CheckedAssertion } from '#contracts/analysis/assertion.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { affectedAssertions, checkChange } from './answer/changed-assertions.js';
import { spacesOf } from './engine/address-space.js';

/**
 * The limit of steps of each comparison for the check of a write. It is reached after about a second, because
 * the write waits for the check.
 */
const STEPS = 2_000_000;

type CheckedWrite = {
  /** The ids of the assertions whose former policy `found` needs. */
  readonly needsFormer: readonly string[];
  /** Returns the assertions that do not hold after the write. */
  readonly found: (formerOf: (assertion: Assertion) => Policy | null) => readonly CheckedAssertion[];
};

/**
 * Checks assertions for a write, which replaces the policy in force `before` by `after`. `isOver`: whether
 * the time for the check is over. `limit`: the maximum number of regions of each assertion. `ipv6`: whether
 * assertions are about IPv6 flows too, because the node enforces IPv6 policies.
 */
export function checkedWrite(
  before: Policy,
  after: Policy,
  assertions: readonly Assertion[],
  { limit, isOver, ipv6 }: { readonly limit: number; readonly isOver: () => boolean; readonly ipv6: boolean },
): CheckedWrite {
  const options = { spaces: spacesOf(ipv6), steps: STEPS, limit, isOver };
  const affected = affectedAssertions(before, after, assertions, options);
  return {
    needsFormer: affected.filter((assertion) => 'opens_nothing_since' in assertion).map(({ id }) => id),
    found: (formerOf) => checkChange(before, after, affected, { ...options, formerOf }),
  };
}
