import { emptyIdentity } from '#observe/findings/empty-identity.js';

/**
 * The identity of a finding of a denied packet or connection from 10.0.0.7 to 192.0.2.1:443, which rule `no`
 * of source group `lan` decided in generation 7.
 */
export const DENIED_FINDING = {
  ...emptyIdentity,
  sourceGroup: 'lan',
  rule: 'no',
  decidedBy: 'rule',
  source: '10.0.0.7',
  destination: '192.0.2.1',
  destinationPort: 443,
  protocol: 6,
  effectiveAction: 'deny',
  generation: 7,
};
