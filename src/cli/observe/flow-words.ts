import { z } from 'zod';

const PROTOCOLS = new Map([
  [1, 'icmp'],
  [6, 'tcp'],
  [17, 'udp'],
  [58, 'icmpv6'],
]);

export const protocolName = (number: number): string => PROTOCOLS.get(number) ?? String(number);

/** Returns a protocol with its destination port or ICMP type, such as `tcp/443`, `icmp/8`, `47`. */
export function serviceText(flow: {
  readonly proto: number;
  readonly dst_port: number | null;
  readonly icmp_type: number | null;
}): string {
  const number = flow.dst_port ?? flow.icmp_type;
  return number === null ? protocolName(flow.proto) : `${protocolName(flow.proto)}/${number}`;
}

/** Returns an address and port as text: `10.0.0.1:443`, or `[2001:db8::1]:443` (RFC 5952, 6). */
export const endpoint = (address: string, port: number | null | undefined): string => {
  if (port === null || port === undefined) return address;
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
};

export const ownerSchema = z
  .object({ integration: z.string(), kind: z.string(), namespace: z.string().nullable(), name: z.string() })
  .nullish();

type Owner = NonNullable<z.infer<typeof ownerSchema>>;

/** Returns the owner of an address as text, such as `pod shop/web-5d4f of prod`. */
export function ownerText({ integration, kind, namespace, name }: Owner): string {
  return `${kind} ${namespace === null ? '' : `${namespace}/`}${name} of ${integration}`;
}

/** Returns an address and port with the pod that owns the address: `shop/web-5d4f (10.244.1.7:80)`. */
export function ownedEndpoint(owner: Owner | null | undefined, at: string): string {
  if (owner == null) return at;
  return `${owner.namespace === null ? `${owner.kind} ` : `${owner.namespace}/`}${owner.name} (${at})`;
}

type Decided = {
  readonly decided_by?: string | null | undefined;
  readonly source_group?: string | null | undefined;
  readonly rule?: string | null | undefined;
  readonly source_groups?: readonly string[] | null | undefined;
};

/**
 * Returns the rule or default that decided a flow or finding as text: `GROUP/RULE`, `GROUP (default)`,
 * `(policy_default)`, or `(policy_default, in GROUP)` if the groups of the source are known.
 */
export function deciderOf({ decided_by: decided, source_group: group, rule, source_groups: groups }: Decided): string {
  if (group === null || group === undefined) {
    if (groups !== null && groups !== undefined)
      return `(policy_default, ${groups.length === 0 ? 'in no group' : `in ${groups.join(' and ')}`})`;
    return decided === null || decided === undefined ? '-' : `(${decided})`;
  }
  return rule === null || rule === undefined ? `${group} (default)` : `${group}/${rule}`;
}
