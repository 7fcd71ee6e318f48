import type { z } from 'zod';
import { configSchema, type ParsedConfig } from '#config/schema/config-schema.js';
import { members } from '#config/schema/schema-tree.js';
import type { Source } from './config-source.js';

/**
 * All configuration keys. The value is true if a support dump may show the value of the key. Support dumps
 * omit keys that are not in this list.
 */
export const SHOWN: Readonly<Record<string, boolean>> = {
  version: true,
  'node.id': true,
  'node.data_dir': true,
  'log.level': true,
  'log.format': true,
  'api.listen': true,
  'api.tls.cert': true,
  'api.tls.key': true,
  'api.allowed_hosts': true,
  'api.requests_per_second': true,
  'api.failed_logins_per_minute': true,
  'api.request_timeout': true,
  'api.max_connections': true,
  'api.max_connections_per_source': true,
  'api.console': true,
  'dataplane.interfaces': true,
  'dataplane.ipv6': true,
  'dataplane.router_ports': true,
  'dataplane.non_ipv4': true,
  'dataplane.reverse_path': true,
  'dataplane.police_local': true,
  'dataplane.translated': true,
  'dataplane.forwarding': true,
  'dataplane.pickup': true,
  'dataplane.flow_capacity': true,
  'dataplane.flow_share': true,
  'dataplane.program_capacity': true,
  'dataplane.timeouts.tcp_opening': true,
  'dataplane.timeouts.tcp_established': true,
  'dataplane.timeouts.tcp_half_closed': true,
  'dataplane.timeouts.tcp_closing': true,
  'dataplane.timeouts.udp': true,
  'dataplane.timeouts.udp_replied': true,
  'dataplane.timeouts.icmp': true,
  'dataplane.timeouts.other': true,
  'dataplane.grant_capacity': true,
  'dataplane.mark_mask': true,
  'dataplane.pin_path': true,
  'policy.fallback': true,
  'policy.activation_timeout': true,
  'policy.file': true,
  'policy.assertions_file': true,
  'policy.history.revisions': true,
  'policy.history.bytes': true,
  'dns.listen': true,
  'dns.upstreams': true,
  'dns.transparent': true,
  'dns.denied_response': true,
  'dns.min_grant': true,
  'dns.max_grant': true,
  'dns.upstream_order': true,
  'dns.cache_size': true,
  'dns.serve_stale': true,
  'dns.rebind_protection': true,
  'dns.rebind_allow': true,
  'dns.canary_names': true,
  'findings.retention': true,
  'findings.max_entries': true,
  'findings.file.path': true,
  'findings.file.max_size': true,
  'findings.file.keep': true,
  // A support dump does not show this value, because the path of a webhook URL is often a secret.
  'findings.webhook.url': false,
  'findings.webhook.secret_file': true,
  'findings.webhook.timeout': true,
  'flow_history.retention': true,
  'flow_history.max_flows': true,
  'wiretap.replay': true,
  'metrics.source_groups': true,
  'metrics.listen': true,
  'metrics.tls.cert': true,
  'metrics.tls.key': true,
  'service_plane.listen': true,
  'service_plane.workers': true,
  'service_plane.max_connections': true,
  'service_plane.max_connections_per_source': true,
  'service_plane.upstream_ca': true,
  'service_plane.denied_http': true,
  'kubernetes.scope': true,
  'kubernetes.node_name': true,
  'kubernetes.pod_cidrs': true,
  'kubernetes.close_new_pods': true,
  'kubernetes.in_cluster.name': true,
  'cluster.etcd.endpoints': true,
  'cluster.etcd.tls.ca': true,
  'cluster.etcd.tls.cert': true,
  'cluster.etcd.tls.key': true,
  'cluster.etcd.user': true,
  'cluster.etcd.password_file': true,
  'cluster.peer.listen': true,
  'cluster.peer.advertise': true,
  'cluster.peer.tls.ca': true,
  'cluster.peer.tls.cert': true,
  'cluster.peer.tls.key': true,
  'cluster.prefix': true,
  'cluster.seal_key_file': true,
};

/**
 * The configuration as a support dump shows it, by dotted key. A value from the file is shown as in the file;
 * a default is shown in its parsed form. Values from environment variables and secret values are omitted.
 */
export type DisclosedConfig = Readonly<
  Record<
    string,
    | { readonly from: 'file' | 'default'; readonly value: unknown }
    | { readonly from: 'environment' }
    | { readonly from: 'withheld' }
  >
>;

export function disclose(source: Source, parsed: ParsedConfig): DisclosedConfig {
  const entries: [string, DisclosedConfig[string]][] = [];
  for (const keys of leavesOf(configSchema)) {
    const key = keys.join('.');
    const value = valueAt(parsed, keys);
    const shown = SHOWN[key];
    if (value === undefined || shown === undefined) continue;
    const written = valueAt(source.value, keys);
    if (!shown) entries.push([key, { from: 'withheld' }]);
    else if (source.isFromEnvironment(keys, written)) entries.push([key, { from: 'environment' }]);
    else if (written === undefined) entries.push([key, { from: 'default', value }]);
    else entries.push([key, { from: 'file', value: written }]);
  }
  return Object.fromEntries(entries);
}

/** Returns the paths of all configuration keys that have a value, without the sections around them. */
export function leavesOf(schema: z.core.$ZodType, path: readonly string[] = []): readonly (readonly string[])[] {
  const inner = members(schema);
  return inner.length === 0 ? [path] : inner.flatMap(([key, member]) => leavesOf(member, [...path, key]));
}

function valueAt(root: unknown, keys: readonly string[]): unknown {
  let value = root;
  for (const key of keys) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = (value as Readonly<Record<string, unknown>>)[key];
  }
  return value;
}
