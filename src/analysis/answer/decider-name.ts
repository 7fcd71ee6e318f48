import type { Decider } from '#analysis/engine/decider.js';
import type { FlowDecider } from '#contracts/analysis/flow-region.js';

export function deciderName({
  group,
  rule,
  outcome,
  inspected,
}: Decider): FlowDecider & { readonly inspected: boolean } {
  return {
    decision: outcome === 'allow' || outcome === 'allow_audited' ? 'allow' : 'deny',
    mode: outcome === 'audit' || outcome === 'allow_audited' ? 'audit' : 'enforce',
    source_group: group?.id ?? null,
    rule: rule?.id ?? null,
    inspected,
  };
}
