import type { FindingDelta } from '#observe/findings/finding.js';

/** Returns a finding of one denied TCP packet, with the fields in `of` replaced. */
export function seen(of: Partial<FindingDelta> = {}): FindingDelta {
  return {
    type: 'l4_deny',
    policyId: '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10',
    sourceGroup: 'lan',
    rule: 'web',
    decidedBy: 'rule',
    source: '10.0.0.7',
    destination: '192.0.2.1',
    destinationPort: 443,
    protocol: 6,
    hostname: null,
    sni: null,
    http: null,
    icmpType: null,
    icmpCode: null,
    dropReason: 'policy_deny',
    reason: null,
    effectiveAction: 'deny',
    actor: null,
    operation: null,
    target: null,
    generation: 7,
    firstMs: 1_000,
    lastMs: 1_000,
    count: 1,
    ...of,
  };
}
