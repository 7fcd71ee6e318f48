import { covers, parseCidr } from '#addresses/ip-address.js';
import type { Address, Prefix } from '#contracts/policy/policy-model.js';
import type { KubernetesObject } from '#kubernetes/watch/objects.js';

/**
 * The facts that decide which addresses an object may own. `podNetworks`: the configured networks of pods;
 * pods own only addresses in them; undefined or empty if they are not known. `own`: the addresses of this
 * node. `nodeName`: the name of this node in Kubernetes; only the Node object with this name may own the
 * addresses of this node.
 */
export type AddressFacts = {
  readonly podNetworks?: readonly Prefix[] | undefined;
  readonly own?: (() => ReadonlySet<Address>) | undefined;
  readonly nodeName?: string | undefined;
};

/**
 * Unspecified, loopback, multicast and broadcast addresses, which are never the source of a packet of a pod
 * or node. Also IPv4-mapped addresses, and link-local addresses of IPv6, which have a meaning on one link
 * only.
 */
const UNUSABLE = [
  ...['0.0.0.0/8', '127.0.0.0/8', '224.0.0.0/4', '255.255.255.255/32'],
  ...['::/128', '::1/128', 'fe80::/10', 'ff00::/8', '::ffff:0:0/96'],
].flatMap((text) => parseCidr(text)?.prefix ?? []);

/**
 * Whether an object may own an address that it claims. Without this test, an account that may write the
 * status of pods could apply the rules of a pod to any address.
 */
export function mayClaim(object: KubernetesObject, address: Address, facts: AddressFacts): boolean {
  const isIn = (prefix: Prefix) => covers(prefix, address);
  if (UNUSABLE.some(isIn)) return false;
  const { podNetworks = [], own, nodeName } = facts;
  if (object.resource === 'pods' && podNetworks.length > 0 && !podNetworks.some(isIn)) return false;
  if (object.resource === 'nodes' && object.name === nodeName) return true;
  return own?.().has(address) !== true;
}
