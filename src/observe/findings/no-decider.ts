import type { FindingIdentity } from './finding.js';

/** The optional fields of a finding, all null. A finding overrides the fields that apply. */
export const emptyIdentity = {
  policyId: null,
  sourceGroup: null,
  rule: null,
  decidedBy: null,
  source: null,
  destination: null,
  destinationPort: null,
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
