import type { SharedAddress } from '#contracts/kubernetes/membership.js';
import { formatAddress } from '#policy/model/ipv4.js';
import { emptyIdentity } from './empty-identity.js';
import type { FindingDelta } from './finding.js';

/**
 * Returns a finding of type `address_shared`: different objects of the integrations own the address, so that
 * no allow rule by a selector matches it. `atMs` is the time in milliseconds since 1970.
 */
export function addressShared({ address, integrations }: SharedAddress, atMs: number): FindingDelta {
  return {
    ...emptyIdentity,
    type: 'address_shared',
    effectiveAction: 'allow',
    source: formatAddress(address),
    target: integrations.join(', '),
    generation: null,
    firstMs: atMs,
    lastMs: atMs,
    count: 1,
  };
}
