import { ADDRESSES } from '#cli/tour/topology.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { compile } from '#policy/compile/compile.js';
import { group, policy, rule } from '#test/policy/sample.js';

/** Returns a policy without rules, whose default action decides every packet. */
export function defaultOnly(action: 'allow' | 'deny', mode: 'audit' | 'enforce' = 'enforce'): Policy {
  return { groups: [], default: { action, mode, from: 'default_policy' } };
}

export const allowAll: Program = compile(defaultOnly('allow'));
export const denyAll: Program = compile(defaultOnly('deny'));
export const auditAll: Program = compile(defaultOnly('deny', 'audit'));

export const ALLOWED = 8_000;
export const DENIED = 8_001;

/**
 * Returns a policy that allows packets from the client to one port of the server. The policy has
 * `destinations` more rules, to make the program image large.
 */
export function policyOf(destinations: number): Policy {
  const allow = rule({ to: [ADDRESSES.server], ports: [String(ALLOWED)] });
  const filler = Array.from({ length: destinations }, (_, index) =>
    rule({
      id: `f${index}`,
      to: [`198.${18 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`],
      ports: [String(index % 60_000)],
    }),
  );
  return policy([group([ADDRESSES.client], [allow, ...filler])]);
}
