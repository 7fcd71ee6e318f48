import { formatAddress } from '#addresses/ip-address.js';
import type { SharedAddress } from '#contracts/kubernetes/membership.js';
import { emptyIdentity } from './empty-identity.js';
import type { FindingDelta } from './finding.js';

/**
 * The maximum length of an etcd key or reason in a finding. Longer texts are truncated, because another
 * program can write a key of up to 1.5 MB to etcd.
 */
const MAX_CHARACTERS = 512;

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

/**
 * Returns a finding of type `cluster_contradiction`: etcd lacks data that this node has applied. `code` is
 * the kind of the contradiction, such as `older`. `atMs` is the time in milliseconds since 1970.
 */
export function clusterContradiction(code: string, atMs: number): FindingDelta {
  return {
    ...emptyIdentity,
    type: 'cluster_contradiction',
    effectiveAction: 'allow',
    target: 'etcd',
    reason: code,
    generation: null,
    firstMs: atMs,
    lastMs: atMs,
    count: 1,
  };
}

/**
 * Returns a finding of type `value_unreadable`: the value of a key in etcd does not match its schema. The
 * node ignores such a value. The key and the reason are cut at 512 characters. `atMs` is the time in
 * milliseconds since 1970.
 */
export function valueUnreadable(key: string, reason: string, atMs: number): FindingDelta {
  return {
    ...emptyIdentity,
    type: 'value_unreadable',
    effectiveAction: 'allow',
    target: key.slice(0, MAX_CHARACTERS),
    reason: reason.slice(0, MAX_CHARACTERS),
    generation: null,
    firstMs: atMs,
    lastMs: atMs,
    count: 1,
  };
}
