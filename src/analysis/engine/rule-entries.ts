import type { Action, Group, Mode, Rule } from '#contracts/policy/policy-model.js';
import { lookupExclusion } from '#policy/evaluate/lookup/evaluate-lookup.js';
import { type Conditions, NEVER } from './conditions.js';
import { type Entry, outcomeFor } from './decision-lists.js';

export type Decides = { readonly action: Action; readonly mode: Mode };

/**
 * Returns the entries of a rule for the flows that its other matchers match. `selectors`: the selectors of
 * its group, if the source belongs to the group only by a selector; otherwise null.
 */
export function entriesOfRule(
  { action, mode, hostname, tls }: Rule,
  tag: number,
  selectors: Group['selectors'] | null,
  conditions: Conditions,
): Entry[] {
  const named = hostname === undefined ? [] : [conditions.atom({ kind: 'name', pattern: hostname })];
  const decided = { action, mode };
  const whole = entries(decided, named, tag, selectors, conditions);
  if (tls === undefined) return whole;
  const block = JSON.stringify(tls);
  const state = action === 'allow' ? 'matches' : 'may_match';
  const matches = conditions.atom({ kind: 'tls', state, block, tls });
  const found = entries(decided, [...named, matches], tag, selectors, conditions);
  if (!readsCertificate(tls)) return found;
  const hidden = conditions.atom({ kind: 'tls', state: 'hidden', block, tls });
  const ofHidden: Decides = { action: tls.tls13_uninspectable === 'allow' ? 'allow' : 'deny', mode };
  // Whether the rule applies to the source depends on the action of the rule, not on the action for a hidden
  // certificate.
  const outcome = outcomeFor(ofHidden.action, mode);
  return [
    ...found,
    ...whole.flatMap(({ condition: scope }) =>
      entryFor([...conditions.atomsOf(scope), hidden], outcome, tag, conditions),
    ),
  ];
}

/**
 * Returns the decision entries (condition and outcome) of a rule for DNS lookups (D11); none if the rule
 * decides no lookup.
 */
export function lookupEntriesOf(
  rule: Rule,
  tag: number,
  selectors: Group['selectors'] | null,
  conditions: Conditions,
): Entry[] {
  if (lookupExclusion(rule) !== undefined) return [];
  const { action, mode, hostname } = rule;
  const named =
    hostname === undefined || hostname.kind === 'any' ? [] : [conditions.atom({ kind: 'name', pattern: hostname })];
  return entries(forLookups({ action, mode }), named, tag, selectors, conditions);
}

/** Returns how a rule or default decides DNS lookups: an allow has no mode (D11). */
export const forLookups = ({ action, mode }: Decides): Decides => ({
  action,
  mode: action === 'allow' ? 'enforce' : mode,
});

/** Returns the decision entries (condition and outcome) of the default of a group. */
export function entriesOfDefault(
  decided: Decides,
  tag: number,
  selectors: Group['selectors'] | null,
  conditions: Conditions,
): Entry[] {
  return entries(decided, [], tag, selectors, conditions);
}

function entries(
  { action, mode }: Decides,
  atoms: readonly number[],
  tag: number,
  selectors: Group['selectors'] | null,
  conditions: Conditions,
): Entry[] {
  const outcome = outcomeFor(action, mode);
  return scopesOf(action, selectors, conditions).flatMap((scope) =>
    entryFor([...scope, ...atoms], outcome, tag, conditions),
  );
}

/** Returns a decision entry as a list; an empty list if its condition can never be fulfilled. */
function entryFor(atoms: readonly number[], outcome: Entry['outcome'], tag: number, conditions: Conditions): Entry[] {
  const condition = conditions.allOf(atoms);
  return condition === NEVER ? [] : [{ condition, outcome, tag }];
}

/**
 * Returns conditions of which at least one must be fulfilled, so that a rule or default with this action
 * applies to the source (`ruleScopeOf`).
 */
function scopesOf(action: Action, selectors: Group['selectors'] | null, conditions: Conditions): readonly number[][] {
  if (selectors === null) return [[]];
  const selected = selectors.map(({ key }) => [conditions.atom({ kind: 'selected', key })]);
  if (action === 'allow') return selected;
  const unresolved = selectors.map(({ key }) => [conditions.atom({ kind: 'unresolved', key })]);
  return [...selected, ...unresolved, [conditions.atom({ kind: 'deny_only' })]];
}

function readsCertificate({
  mode,
  server_dn,
  server_san,
  server_cn,
  fingerprint_sha256,
  trust_anchors_pem,
}: NonNullable<Rule['tls']>): boolean {
  if (mode === 'intercept') return false;
  return [server_dn, server_san, server_cn, fingerprint_sha256, trust_anchors_pem].some(
    (matcher) => matcher !== undefined,
  );
}
