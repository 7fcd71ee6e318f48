import type { Prefix } from '#contracts/policy-model.js';
import { containsPrefix, parseCidr } from '#policy/model/ipv4.js';
import type { KubernetesObject } from './objects.js';

/**
 * The facts about the addresses of a node. `podNetworks`: the configured networks of pods. No pod owns an
 * address outside of them; undefined or empty if the networks are not known. `own`: the addresses of this
 * node. `nodeName`: its name in Kubernetes: the object of this node may own the addresses of the node.
 */
export type AddressFacts = {
  readonly podNetworks?: readonly Prefix[] | undefined;
  readonly own?: (() => ReadonlySet<number>) | undefined;
  readonly nodeName?: string | undefined;
};

/** Unspecified, loopback, multicast and broadcast addresses: no pod and no node sends from them. */
const UNUSABLE = ['0.0.0.0/8', '127.0.0.0/8', '224.0.0.0/4', '255.255.255.255/32'].flatMap(
  (text) => parseCidr(text)?.prefix ?? [],
);

/**
 * Whether an object may own an address that it claims. An account that may write the status of pods could
 * otherwise impose the rules of a pod on any address.
 */
export function mayClaim(object: KubernetesObject, address: number, facts: AddressFacts): boolean {
  const isIn = (prefix: Prefix) => containsPrefix(prefix, { address, length: 32 });
  if (UNUSABLE.some(isIn)) return false;
  const { podNetworks = [], own, nodeName } = facts;
  if (object.resource === 'pods' && podNetworks.length > 0 && !podNetworks.some(isIn)) return false;
  if (object.resource === 'nodes' && object.name === nodeName) return true;
  return own?.().has(address) !== true;
}
