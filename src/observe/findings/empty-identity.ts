import type { FindingIdentity } from './finding.js';

/**
 * The nullable fields of a finding, all null. Code that creates a finding copies these fields and overrides
 * those that apply.
 */
export const emptyIdentity = {
  policyId: null,
  sourceGroup: null,
  rule: null,
  decidedBy: null,
  source: null,
  destination: null,
  sourceOwner: null,
  destinationOwner: null,
  destinationPort: null,
  wireDestination: null,
  protocol: null,
  hostname: null,
  sni: null,
  http: null,
  icmpType: null,
  icmpCode: null,
  dropReason: null,
  reason: null,
  actor: null,
  operation: null,
  target: null,
} as const satisfies Partial<FindingIdentity>;
