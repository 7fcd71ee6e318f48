import type { PolicyConfig, RuleConfig } from '#contracts/policy-document.js';
import { type ReadContext, readPolicy } from '#policy/check/read.js';
import { formatAddress, formatPrefix, mask } from '#policy/model/ipv4.js';
import { ProofMemory } from '#policy/proof/proof-memory.js';
import { compile } from './compile.js';
import { CompileMemory } from './compile-memory.js';

const GROUPS = 40;
const RULES_EACH = 10;

/**
 * Does once to a made-up policy what a write does to one, so that the engine has compiled this code before the first
 * write comes. Rounds differ a little, as policies do.
 */
export function rehearse(round: number, context: Omit<ReadContext, 'form' | 'recordMode' | 'integrations'>): void {
  const body = new TextEncoder().encode(JSON.stringify(policyOf(round)));
  const read = readPolicy(body, { ...context, form: 'singleton', recordMode: 'enforce', integrations: new Set() });
  if (!read.ok) throw new Error(`the policy of the rehearsal is not valid: ${JSON.stringify(read.problems[0])}`);
  compile(read.policy, { memory: new CompileMemory() });
  new ProofMemory().judged(read.policy, 1);
}

function policyOf(round: number): PolicyConfig {
  return {
    default_policy: 'deny',
    source_groups: Array.from({ length: GROUPS + round }, (_, group) => ({
      id: `g${group}`,
      mode: 'enforce',
      sources: group % 8 === 0 ? { ips: [formatAddress(drawn(group))] } : { cidrs: [networkOf(group, 24)] },
      rules: Array.from({ length: RULES_EACH }, (_, rule) => ruleOf(rule, drawn(group * RULES_EACH + rule + round))),
    })),
  };
}

const LENGTHS = [32, 32, 32, 28, 24, 24, 16] as const;

function ruleOf(rule: number, number: number): RuleConfig {
  const length = LENGTHS[number % LENGTHS.length] ?? 32;
  const low = (number % 60_000) + 1;
  const ports = [[443], [80, 443], [`${low}-${low + 500}`]];
  return {
    id: `r${rule}`,
    action: number % 3 === 0 ? 'deny' : 'allow',
    match: {
      ...(length === 32 ? { dst_ips: [formatAddress(number)] } : { dst_cidrs: [networkOf(number, length)] }),
      proto: number % 5 < 3 ? 'tcp' : 'udp',
      dst_ports: ports[number % ports.length],
    },
  };
}

function networkOf(number: number, length: number): string {
  return formatPrefix({ address: mask(drawn(number), length), length });
}

function drawn(number: number): number {
  const mixed = Math.imul(number + 1, 0x9e37_79b1);
  return Math.imul(mixed ^ (mixed >>> 15), 0x85eb_ca6b) >>> 0;
}
