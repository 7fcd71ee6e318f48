import { covers } from '#addresses/ip-address.js';
import type { Atom } from '#analysis/engine/conditions.js';
import type { Outcome } from '#analysis/engine/decision-lists.js';
import type { Address, Group, Packet, Policy, Rule } from '#contracts/policy/policy-model.js';
import { type LookupOutcome, lookupMismatch, lookupOutcome } from '#policy/evaluate/lookup/evaluate-lookup.js';
import { mismatch } from '#policy/evaluate/mismatch.js';
import { matchesHostname } from '#policy/model/names/hostname.js';
import type { Random } from '#test/seed.js';

/** `unknown`: the TLS block is undecidable. `hidden`: only the certificate of the server is hidden. */
type BlockState = 'matches' | 'no' | 'unknown' | 'hidden';

/** Everything that decides a flow beside its addresses, protocol and ports. */
export type World = {
  /** The names for whose patterns the destination has a grant. */
  readonly names: readonly string[];
  readonly selectors: ReadonlyMap<string, 'selected' | 'unresolved'>;
  readonly denyOnly: boolean;
  /** The state of each TLS block, by its JSON text. A missing block does not match. */
  readonly blocks: ReadonlyMap<string, BlockState>;
};

const NAMES = ['api.example.com', 'www.example.com', 'www1.test', 'other.org', 'a.b.example.com'];
const CERTIFICATE = ['server_dn', 'server_san', 'server_cn', 'fingerprint_sha256', 'trust_anchors_pem'];

/** Returns a random world for flows that these policies decide. */
export function randomWorld(random: Random, policies: readonly Policy[]): World {
  const groups = policies.flatMap((policy) => policy.groups);
  const keys = new Set(groups.flatMap(({ selectors }) => selectors.map(({ key }) => key)));
  const blocks = new Set(
    groups.flatMap(({ rules }) => rules.flatMap(({ tls }) => (tls === undefined ? [] : [JSON.stringify(tls)]))),
  );
  const denyOnly = random.chance(0.2);
  const pickSelector = () =>
    random.pick(denyOnly ? (['none', 'unresolved'] as const) : (['none', 'selected', 'unresolved'] as const));
  return {
    names: NAMES.filter(() => random.chance(0.3)),
    denyOnly,
    selectors: new Map(
      [...keys].flatMap((key) => {
        const state = pickSelector();
        return state === 'none' ? [] : [[key, state] as const];
      }),
    ),
    blocks: new Map(
      [...blocks].map((block) => {
        const readsCertificate =
          CERTIFICATE.some((matcher) => block.includes(`"${matcher}"`)) && !block.includes('"intercept"');
        const states: BlockState[] = readsCertificate
          ? ['matches', 'no', 'unknown', 'hidden']
          : ['matches', 'no', 'unknown'];
        return [block, random.pick(states)] as const;
      }),
    ),
  };
}

/** Whether an atom of a condition holds in a world. */
export function holdsIn(world: World, atom: Atom): boolean {
  switch (atom.kind) {
    case 'name':
      return world.names.some((name) => matchesHostname(atom.pattern, name));
    case 'deny_only':
      return world.denyOnly;
    case 'tls': {
      const state = world.blocks.get(atom.block) ?? 'no';
      if (atom.state === 'may_match') return state === 'matches' || state === 'unknown';
      return state === atom.state;
    }
    default:
      return world.selectors.get(atom.key) === atom.kind;
  }
}

export type Decided = { readonly outcome: Outcome; readonly inspected: boolean };

/** Decides a flow in a world by a walk over all groups and rules (D3, D19a, D22a). */
export function decideIn(policy: Policy, packet: Packet, world: World): Decided {
  let inspected: boolean | undefined;
  const decided = (action: 'allow' | 'deny', mode: 'audit' | 'enforce'): Decided => ({
    outcome: action === 'allow' ? (mode === 'audit' ? 'allow_audited' : 'allow') : mode === 'audit' ? 'audit' : 'deny',
    inspected: inspected ?? false,
  });
  const grants = {
    has: (pattern: NonNullable<Rule['hostname']>) => world.names.some((name) => matchesHostname(pattern, name)),
  };
  for (const group of policy.groups) {
    const applies = scopeOf(group, packet.source, world);
    for (const rule of group.rules) {
      if (!applies(rule.action) || mismatch(rule, packet, grants) !== undefined) continue;
      inspected ??= rule.tls !== undefined;
      if (rule.tls === undefined) return decided(rule.action, rule.mode);
      const state = world.blocks.get(JSON.stringify(rule.tls)) ?? 'no';
      if (state === 'hidden') return decided(rule.tls.tls13_uninspectable === 'allow' ? 'allow' : 'deny', rule.mode);
      if (state === 'matches' || (state === 'unknown' && rule.action === 'deny'))
        return decided(rule.action, rule.mode);
    }
    if (group.defaultAction !== undefined && applies(group.defaultAction))
      return decided(group.defaultAction, group.mode);
  }
  return decided(policy.default.action, policy.default.mode);
}

/** Decides a DNS lookup in a world by a walk over all groups and rules (D11). */
export function decideLookupIn(policy: Policy, source: Address, name: string, world: World): LookupOutcome['verdict'] {
  for (const group of policy.groups) {
    const applies = scopeOf(group, source, world);
    for (const rule of group.rules)
      if (applies(rule.action) && lookupMismatch(rule, name) === undefined)
        return lookupOutcome(rule.action, rule.mode).verdict;
    if (group.defaultAction !== undefined && applies(group.defaultAction))
      return lookupOutcome(group.defaultAction, group.mode).verdict;
  }
  return lookupOutcome(policy.default.action, policy.default.mode).verdict;
}

/** Returns whether the rules of a group with an action apply to a source. */
function scopeOf({ sources, selectors }: Group, source: Address, world: World): (action: Rule['action']) => boolean {
  const states = selectors.map(({ key }) => world.selectors.get(key));
  const all = sources.some((prefix) => covers(prefix, source)) || states.includes('selected');
  const denies = selectors.length > 0 && (states.includes('unresolved') || world.denyOnly);
  return (action) => all || (denies && action === 'deny');
}
