import { protocol } from '../../format.js';
import type { Verdict } from '../../ui/parts.js';

type Owner = { readonly kind: string; readonly namespace: string | null; readonly name: string };
type BothWays = { readonly forward: number; readonly reply: number };

/**
 * A message of the wiretap, as docs/wiretap.md describes it. A member that does not apply is null or absent.
 */
export type Message = {
  readonly type: string;
  readonly time?: string | null;
  readonly node_id?: string | null;
  readonly src?: string | null;
  readonly src_port?: number | null;
  readonly src_names?: readonly string[] | null;
  readonly src_owner?: Owner | null;
  readonly dst?: string | null;
  readonly dst_port?: number | null;
  readonly dst_names?: readonly string[] | null;
  readonly dst_owner?: Owner | null;
  readonly proto?: number | null;
  readonly icmp_type?: number | null;
  readonly icmp_code?: number | null;
  readonly verdict?: string | null;
  readonly effective_action?: string | null;
  readonly drop_reason?: string | null;
  readonly source_group?: string | null;
  readonly rule?: string | null;
  readonly decided_by?: string | null;
  /** The groups that contain the source, if the default of the policy decided. */
  readonly source_groups?: readonly string[] | null;
  readonly packets?: BothWays | number | null;
  readonly bytes?: BothWays | null;
  readonly interface?: string | null;
  readonly hostname?: string | null;
  readonly query_type?: string | null;
  readonly sni?: string | null;
  readonly http?: { readonly method: string; readonly host: string; readonly path: string } | null;
  readonly reason?: string | null;
  /** The number of equal messages that the node combined into this message; absent for one. */
  readonly count?: number | null;
  readonly where?: string | null;
};

/**
 * Returns what happened to the traffic of a message. Traffic that is only reported as denied (audit mode) is
 * never "allowed".
 */
export function outcomeOf({ type, verdict, effective_action, reason }: Message): Verdict {
  if (effective_action === 'deny' && !(type === 'flow_end' && reason === 'cut')) return 'deny';
  return verdict === 'audit' ? 'would_deny' : 'allow';
}

export const ownerName = (owner: Owner | null | undefined): string | null =>
  owner == null ? null : owner.namespace === null ? owner.name : `${owner.namespace}/${owner.name}`;

/** Returns the service of a message as text: "tcp 443", "lookup A", "GET /index.html". */
export function subjectOf({ type, proto, dst_port, query_type, http, icmp_type }: Message): string {
  if (type === 'dns') return `lookup ${query_type ?? ''}`.trim();
  if (http != null) return `${http.method} ${http.path}`;
  if (proto == null) return type;
  const name = protocol(proto);
  if (dst_port != null) return type === 'tls' ? `tls ${dst_port}` : `${name} ${dst_port}`;
  return typeof icmp_type === 'number' ? `${name} type ${icmp_type}` : name;
}

/** Returns the rule or default that decided as text. */
export function deciderOf(decided: {
  readonly decided_by?: string | null | undefined;
  readonly source_group?: string | null | undefined;
  readonly rule?: string | null | undefined;
  readonly source_groups?: readonly string[] | null | undefined;
}): string {
  const { decided_by: by, source_group: group, rule, source_groups: groups } = decided;
  if (group != null) return rule == null ? `${group}, default` : `${group} / ${rule}`;
  if (by === 'policy_default') {
    if (groups == null) return 'policy default';
    return `policy default (in ${groups.length === 0 ? 'no group' : groups.join(', ')})`;
  }
  if (by === 'policy_gone') return 'an earlier policy';
  return by === 'nobody' || by == null ? 'nobody' : by.replaceAll('_', ' ');
}
