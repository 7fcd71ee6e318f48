import { isIPv4, isIPv6 } from 'node:net';
import type { OwnerName } from '#contracts/kubernetes/address-owner.js';
import type { Finding, FindingType } from './finding.js';

/** The JSON form of a finding in API responses and in deliveries to files or webhooks (D31). */
export type ShownFinding = {
  id: string;
  finding_type: FindingType;
  policy_id: string | null;
  generation: number | null;
  source_group: string | null;
  source_groups: string[] | null;
  rule: string | null;
  decided_by: Finding['decidedBy'];
  src_ip: string | null;
  dst_ip: string | null;
  src_owner: OwnerName | null;
  dst_owner: OwnerName | null;
  dst_port: number | null;
  translation: { dst_ip: string; dst_port: number | null } | null;
  proto: number | null;
  hostname: string | null;
  sni: string | null;
  http: { method: string; host: string; path: string } | null;
  icmp_type: number | null;
  icmp_code: number | null;
  drop_reason: string | null;
  reason: string | null;
  effective_action: 'allow' | 'deny';
  actor: string | null;
  operation: string | null;
  target: string | null;
  remote: string | null;
  status: number | null;
  etag: string | null;
  first_seen: string;
  last_seen: string;
  count: number;
  node_ids: string[];
};

export function shownFinding(finding: Finding, nodeId: string): ShownFinding {
  const { source, wireDestination: wire, written } = finding;
  const ofApi = finding.type === 'auth_denied' || finding.type === 'config_change';
  return {
    id: finding.id,
    finding_type: finding.type,
    policy_id: finding.policyId,
    generation: finding.generation,
    source_group: finding.sourceGroup,
    source_groups: finding.sourceGroups == null ? null : [...finding.sourceGroups],
    rule: finding.rule,
    decided_by: finding.decidedBy,
    src_ip: source !== null && (isIPv4(source) || (!ofApi && isIPv6(source))) ? source : null,
    dst_ip: finding.destination,
    src_owner: finding.sourceOwner ?? null,
    dst_owner: finding.destinationOwner ?? null,
    dst_port: finding.destinationPort,
    translation: wire == null ? null : { dst_ip: wire.address, dst_port: wire.port },
    proto: finding.protocol,
    hostname: finding.hostname,
    sni: finding.sni,
    http: finding.http,
    icmp_type: finding.icmpType,
    icmp_code: finding.icmpCode,
    drop_reason: finding.dropReason,
    reason: finding.reason ?? null,
    effective_action: finding.effectiveAction,
    actor: finding.actor,
    operation: finding.operation,
    target: finding.target,
    remote: ofApi ? source : null,
    status: written?.status ?? null,
    etag: written?.etag ?? null,
    first_seen: new Date(finding.firstMs).toISOString(),
    last_seen: new Date(finding.lastMs).toISOString(),
    count: finding.count,
    node_ids: [nodeId],
  };
}
