import { lookupsOf } from '#contracts/dns/dns-lookups.js';
import { NO_SELECTORS } from '#contracts/kubernetes/membership.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import type { PolicyRecord } from '#contracts/policy/policy-record.js';
import type { Program } from '#contracts/policy/program.js';
import type { ProofSamples } from '#contracts/policy/proof-types.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';
import type { PolicySurroundings, Prepared } from '#policies/thread/policy-work.js';
import { compile } from '#policy/compile/compile.js';
import { ruleNamesOfRecord } from '#policy/model/rules/rule-names.js';
import { samplesOf } from '#policy/proof/proof-sample.js';
import type { CompiledPolicy } from '#statecharts/write.chart.js';

/**
 * A compiled policy without its proof samples (packets with expected verdicts), which the policy thread
 * computes after the program.
 */
export type UnsampledPolicy = Omit<CompiledPolicy, 'samples'>;

/** Returns the compiled policy of a record, with the program that the policy thread has compiled for it. */
export function compiledPolicyOf(
  record: PolicyRecord,
  generation: number,
  {
    needs,
    integrations,
    selectors,
    scope,
    inspected,
    hasFormer,
  }: Pick<Prepared, 'needs' | 'integrations' | 'selectors' | 'scope' | 'inspected' | 'hasFormer'>,
  compiled: Program,
): UnsampledPolicy {
  const program = { ...compiled, ruleNames: ruleNamesOfRecord(compiled.ruleNames, record) };
  const inspection: InspectionImage =
    inspected === null
      ? { generation, scope, program, policy: null, intercepts: false }
      : { generation, scope, program: null, ...inspected };
  const lookups = lookupsOf(program, generation);
  return {
    program,
    hasFormer,
    inForce: {
      record,
      generation,
      needs,
      integrations,
      selectors,
      unresolved: selectors.filter(({ key }) => !scope.resolved.has(key)),
      lookups,
      inspection,
    },
  };
}

/**
 * Returns the compiled policy for a node without an active policy. It has no groups, so the setting
 * `policy.fallback` decides every packet and every DNS lookup.
 */
export function fallbackPolicy(
  { fallback, ipv6 }: Pick<PolicySurroundings, 'fallback' | 'ipv6'>,
  generation: number,
): UnsampledPolicy & { readonly samples: ProofSamples } {
  const policy: Policy = { groups: [], default: { action: fallback, mode: 'enforce', from: 'fallback' } };
  const program = compile(policy, { ipv6 });
  const needs = { dataplane: false, dns: false, servicePlane: false };
  const inForce = {
    record: null,
    generation,
    needs,
    integrations: [],
    selectors: [],
    unresolved: [],
    lookups: lookupsOf(program, generation),
    inspection: { generation, scope: NO_SELECTORS, program, policy: null, intercepts: false },
  };
  return { program, hasFormer: false, samples: samplesOf(policy, { ipv6 }), inForce };
}
