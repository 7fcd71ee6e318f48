import type { FindingIdentity } from './finding.js';

/** The fields of a finding that is not related to a packet, policy or caller: all null. */
export const nobody = {
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
