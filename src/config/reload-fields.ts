/**
 * All configuration keys. The value is the part of the node that takes a changed value while it runs, or
 * `restart` if the value is read only at the start of the node. A key of an optional section needs a restart
 * too if the section is added or removed.
 */
export const RELOADED_BY = {
  version: 'restart',
  'node.id': 'restart',
  'node.data_dir': 'restart',
  'log.level': 'log',
  'log.format': 'log',
  'api.listen': 'restart',
  'api.tls.cert': 'restart',
  'api.tls.key': 'restart',
  'api.allowed_hosts': 'api',
  'api.requests_per_second': 'api',
  'api.failed_logins_per_minute': 'api',
  'api.request_timeout': 'api',
  'api.max_connections': 'api',
  'api.max_connections_per_source': 'api',
  'dataplane.interfaces': 'dataplane',
  // The other keys of this section are constants of the loaded BPF programs, or sizes of their maps.
  'dataplane.non_ipv4': 'restart',
  'dataplane.reverse_path': 'restart',
  'dataplane.police_local': 'restart',
  'dataplane.forwarding': 'restart',
  'dataplane.pickup': 'restart',
  'dataplane.flow_capacity': 'restart',
  'dataplane.flow_share': 'restart',
  'dataplane.program_capacity': 'restart',
  'dataplane.timeouts.tcp_opening': 'restart',
  'dataplane.timeouts.tcp_established': 'restart',
  'dataplane.timeouts.tcp_half_closed': 'restart',
  'dataplane.timeouts.tcp_closing': 'restart',
  'dataplane.timeouts.udp': 'restart',
  'dataplane.timeouts.udp_replied': 'restart',
  'dataplane.timeouts.icmp': 'restart',
  'dataplane.timeouts.other': 'restart',
  'dataplane.grant_capacity': 'restart',
  'dataplane.mark_mask': 'restart',
  'dataplane.pin_path': 'restart',
  // The fallback is a part of the compiled policy.
  'policy.fallback': 'restart',
  'policy.activation_timeout': 'restart',
  'policy.file': 'policy_file',
  'dns.listen': 'dns',
  'dns.upstreams': 'dns',
  // A constant of the loaded BPF programs.
  'dns.transparent': 'restart',
  'dns.denied_response': 'dns',
  'dns.min_grant': 'dns',
  'dns.max_grant': 'dns',
  'dns.upstream_order': 'dns',
  'dns.cache_size': 'dns',
  'dns.serve_stale': 'dns',
  'dns.rebind_protection': 'dns',
  'dns.rebind_allow': 'dns',
  'findings.retention': 'restart',
  'findings.max_entries': 'restart',
  'findings.file.path': 'restart',
  'findings.file.max_size': 'restart',
  'findings.file.keep': 'restart',
  'findings.webhook.url': 'restart',
  'findings.webhook.secret_file': 'restart',
  'findings.webhook.timeout': 'restart',
  'wiretap.replay': 'restart',
  // A constant of the loaded BPF programs.
  'service_plane.listen': 'restart',
  'service_plane.workers': 'restart',
  'service_plane.max_connections': 'service_plane',
  'service_plane.max_connections_per_source': 'service_plane',
  'service_plane.upstream_ca': 'service_plane',
  'service_plane.denied_http': 'service_plane',
  'cluster.etcd.endpoints': 'restart',
  'cluster.etcd.tls.ca': 'restart',
  'cluster.etcd.tls.cert': 'restart',
  'cluster.etcd.tls.key': 'restart',
  'cluster.etcd.user': 'restart',
  'cluster.etcd.password_file': 'restart',
  'cluster.peer.listen': 'restart',
  'cluster.peer.advertise': 'restart',
  'cluster.peer.tls.ca': 'restart',
  'cluster.peer.tls.cert': 'restart',
  'cluster.peer.tls.key': 'restart',
  'cluster.prefix': 'restart',
  'cluster.seal_key_file': 'restart',
} as const satisfies Readonly<Record<string, ReloadedBy>>;

export type ReloadedBy = 'dataplane' | 'dns' | 'service_plane' | 'policy_file' | 'api' | 'log' | 'restart';

/** Returns the part that takes a changed value of this key, or `restart`. */
export function reloadedBy(key: string): ReloadedBy {
  return Object.hasOwn(RELOADED_BY, key) ? RELOADED_BY[key as keyof typeof RELOADED_BY] : 'restart';
}
