import type { ParsedConfig } from '#config/schema/config-schema.js';
import type { Prefix } from '#contracts/policy/policy-model.js';
import { anyPrefixIn, type ListenAddress, prefixIn } from './value.js';

type TlsFiles = { readonly cert: string; readonly key: string };
type MutualTlsFiles = TlsFiles & { readonly ca: string };

/**
 * The validated configuration of a node: frozen, with all defaults. If a section is null, the component of
 * this section does not run.
 */
export type Config = {
  readonly node: { readonly id: string; readonly dataDir: string };
  readonly log: Readonly<ParsedConfig['log']>;
  readonly api: {
    readonly listen: ListenAddress;
    readonly tls: TlsFiles | null;
    readonly allowedHosts: readonly string[];
    readonly requestsPerSecond: number;
    readonly failedLoginsPerMinute: number;
    readonly requestTimeoutMs: number;
    readonly maxConnections: number;
    readonly maxConnectionsPerSource: number;
    readonly console: boolean;
  };
  readonly dataplane: DataplaneConfig | null;
  readonly policy: {
    readonly fallback: 'allow' | 'deny';
    readonly activationTimeoutMs: number;
    readonly file: string | null;
    readonly assertionsFile: string | null;
    readonly history: { readonly revisions: number; readonly bytes: number };
  };
  readonly dns: DnsConfig | null;
  readonly findings: FindingsConfig;
  /**
   * For how many milliseconds flows are recorded (0: not at all), and the maximum number of recorded flows.
   */
  readonly flowHistory: { readonly retentionMs: number; readonly maxFlows: number };
  /** How long wiretap messages are kept, in milliseconds, so that a new reader can start with them. */
  readonly wiretap: { readonly replayMs: number };
  readonly metrics: MetricsConfig;
  readonly servicePlane: ServicePlaneConfig | null;
  readonly kubernetes: KubernetesConfig;
  readonly cluster: ClusterConfig | null;
};

/** The time in milliseconds for which Weir keeps a flow without packets, by the state of the flow. */
type FlowTimeouts = Readonly<
  Record<
    | `tcp_${'syn_sent' | 'syn_received' | 'established' | 'half_closed' | 'closing' | 'reset'}`
    | `${'udp' | 'icmp' | 'other'}_${'opened' | 'replied'}`,
    number
  >
>;

type DataplaneConfig = {
  /**
   * Names of network interfaces. A name that ends in `*`, such as `eth*`, stands for all interfaces whose
   * names begin with the part before `*`.
   */
  readonly interfaces: readonly string[];
  readonly ipv6: 'drop' | 'pass' | 'enforce';
  readonly routerPorts: readonly string[];
  readonly nonIpv4: 'drop' | 'pass';
  readonly reversePath: 'strict' | 'loose' | 'off';
  readonly policeLocal: boolean;
  readonly translated: readonly Prefix<number>[];
  readonly forwarding: 'auto' | 'stack' | 'direct';
  readonly pickupMs: number;
  readonly flowCapacity: number;
  readonly flowShare: number;
  readonly programCapacity: number;
  readonly timeoutsMs: FlowTimeouts;
  readonly grantCapacity: number;
  readonly markMask: number;
  readonly pinPath: string;
};

type DnsConfig = {
  readonly listen: readonly ListenAddress[];
  readonly upstreams: readonly ListenAddress[];
  readonly transparent: boolean;
  readonly deniedResponse: 'nxdomain' | 'refused';
  readonly minGrantMs: number;
  readonly maxGrantMs: number;
  readonly upstreamOrder: 'listed' | 'fastest';
  readonly cacheBytes: number;
  readonly serveStaleMs: number;
  readonly rebindProtection: boolean;
  /**
   * Hostnames that may resolve to private addresses. `*.example.com` stands for all names below
   * `example.com`.
   */
  readonly rebindAllow: readonly string[];
  /**
   * Hostnames that the DNS proxy answers with NXDOMAIN. `*.example.com` stands for all names below
   * `example.com`.
   */
  readonly canaryNames: readonly string[];
};

type FindingsConfig = {
  readonly retentionMs: number;
  readonly maxEntries: number;
  readonly file: { readonly path: string; readonly maxBytes: number; readonly keep: number } | null;
  readonly webhook: { readonly url: string; readonly secretFile: string; readonly timeoutMs: number } | null;
};

type MetricsConfig = {
  /** The maximum number of source groups with separate metrics. */
  readonly sourceGroups: number;
  /** The address of the metrics listener; null if only the API serves metrics. */
  readonly listen: ListenAddress | null;
  readonly tls: TlsFiles | null;
};

type ServicePlaneConfig = {
  readonly listen: ListenAddress;
  readonly workers: number;
  /** The limit of connections for each worker thread. */
  readonly maxConnections: number;
  /** The limit of connections per source address for each worker thread. */
  readonly maxConnectionsPerSource: number;
  /** `system` for the CA certificates of the operating system, or the path of a PEM file. */
  readonly upstreamCa: string;
  readonly deniedHttp: '403' | 'reset';
};

type KubernetesConfig = {
  /** The name of the Kubernetes node whose pods are watched; null for the pods of all nodes. */
  readonly node: string | null;
  /** The name of this node in Kubernetes. */
  readonly nodeName: string;
  /** The networks of pods; undefined for the `podCIDRs` of the nodes. */
  readonly podNetworks: readonly Prefix[] | undefined;
  /** Whether IPv6 addresses of objects become members: the datapath enforces IPv6. */
  readonly ipv6: boolean;
  /** The name of the integration with the cluster in which the node runs; null if there is none. */
  readonly inCluster: string | null;
};

type ClusterConfig = {
  readonly etcd: {
    readonly endpoints: readonly string[];
    readonly tls: MutualTlsFiles | null;
    /** The etcd user of the node; null if the node does not log in to etcd with a password. */
    readonly user: { readonly name: string; readonly passwordFile: string } | null;
  };
  readonly peer: {
    readonly listen: ListenAddress;
    readonly advertise: ListenAddress;
    readonly tls: MutualTlsFiles | null;
  };
  readonly prefix: string;
  readonly sealKeyFile: string | null;
};

export function configOf(parsed: ParsedConfig): Config {
  const { node, log, api, dataplane, policy, dns, flow_history, wiretap, metrics, service_plane, kubernetes, cluster } =
    parsed;
  return frozen({
    node: { id: node.id, dataDir: node.data_dir },
    log,
    api: {
      listen: api.listen,
      tls: api.tls,
      allowedHosts: api.allowed_hosts,
      requestsPerSecond: api.requests_per_second,
      failedLoginsPerMinute: api.failed_logins_per_minute,
      requestTimeoutMs: api.request_timeout,
      maxConnections: api.max_connections,
      maxConnectionsPerSource: api.max_connections_per_source,
      console: api.console,
    },
    dataplane:
      dataplane === undefined
        ? null
        : {
            interfaces: dataplane.interfaces,
            ipv6: dataplane.ipv6,
            routerPorts: dataplane.router_ports,
            nonIpv4: dataplane.non_ipv4,
            reversePath: dataplane.reverse_path,
            policeLocal: dataplane.police_local,
            translated: dataplane.translated.flatMap((text) => prefixIn(text) ?? []),
            forwarding: dataplane.forwarding,
            pickupMs: dataplane.pickup,
            flowCapacity: dataplane.flow_capacity,
            flowShare: dataplane.flow_share,
            programCapacity: dataplane.program_capacity,
            timeoutsMs: timeoutsOf(dataplane.timeouts),
            grantCapacity: dataplane.grant_capacity,
            markMask: dataplane.mark_mask,
            pinPath: dataplane.pin_path,
          },
    policy: {
      fallback: policy.fallback,
      activationTimeoutMs: policy.activation_timeout ?? (cluster === undefined ? 5_000 : 15_000),
      file: policy.file,
      assertionsFile: policy.assertions_file,
      history: policy.history,
    },
    dns:
      dns === undefined
        ? null
        : {
            listen: dns.listen,
            upstreams: dns.upstreams,
            transparent: dns.transparent,
            deniedResponse: dns.denied_response,
            minGrantMs: dns.min_grant,
            maxGrantMs: dns.max_grant,
            upstreamOrder: dns.upstream_order,
            cacheBytes: dns.cache_size * 2 ** 20,
            serveStaleMs: dns.serve_stale,
            rebindProtection: dns.rebind_protection,
            rebindAllow: dns.rebind_allow,
            canaryNames: dns.canary_names,
          },
    findings: findingsOf(parsed.findings),
    flowHistory: { retentionMs: flow_history.retention, maxFlows: flow_history.max_flows },
    wiretap: { replayMs: wiretap.replay },
    metrics: { sourceGroups: metrics.source_groups, listen: metrics.listen, tls: metrics.tls },
    servicePlane:
      service_plane === undefined
        ? null
        : {
            listen: service_plane.listen,
            workers: service_plane.workers,
            maxConnections: service_plane.max_connections,
            maxConnectionsPerSource: service_plane.max_connections_per_source,
            upstreamCa: service_plane.upstream_ca,
            deniedHttp: service_plane.denied_http,
          },
    kubernetes: {
      node: kubernetes.scope === 'node' ? (kubernetes.node_name ?? node.id) : null,
      nodeName: kubernetes.node_name ?? node.id,
      ipv6: dataplane?.ipv6 === 'enforce',
      podNetworks: kubernetes.close_new_pods ? podNetworksOf(kubernetes.pod_cidrs) : [],
      inCluster: kubernetes.in_cluster?.name ?? null,
    },
    cluster:
      cluster === undefined
        ? null
        : {
            etcd: etcdOf(cluster.etcd),
            peer: cluster.peer,
            prefix: cluster.prefix,
            sealKeyFile: cluster.seal_key_file,
          },
  });
}

function findingsOf({ retention, max_entries, file, webhook }: ParsedConfig['findings']): FindingsConfig {
  return {
    retentionMs: retention,
    maxEntries: max_entries,
    file: file === null ? null : { path: file.path, maxBytes: file.max_size * 2 ** 20, keep: file.keep },
    webhook:
      webhook === null ? null : { url: webhook.url, secretFile: webhook.secret_file, timeoutMs: webhook.timeout },
  };
}

function podNetworksOf(texts: readonly string[]): readonly Prefix[] | undefined {
  return texts.length === 0 ? undefined : texts.flatMap((text) => anyPrefixIn(text) ?? []);
}

function etcdOf({
  endpoints,
  tls,
  user,
  password_file: passwordFile,
}: NonNullable<ParsedConfig['cluster']>['etcd']): ClusterConfig['etcd'] {
  return { endpoints, tls, user: user === null || passwordFile === null ? null : { name: user, passwordFile } };
}

function timeoutsOf(idle: NonNullable<ParsedConfig['dataplane']>['timeouts']): FlowTimeouts {
  return {
    tcp_syn_sent: idle.tcp_opening,
    tcp_syn_received: idle.tcp_opening,
    tcp_established: idle.tcp_established,
    tcp_half_closed: idle.tcp_half_closed,
    tcp_closing: idle.tcp_closing,
    tcp_reset: idle.tcp_closing,
    udp_opened: idle.udp,
    udp_replied: idle.udp_replied,
    icmp_opened: idle.icmp,
    icmp_replied: idle.icmp,
    other_opened: idle.other,
    other_replied: idle.other,
  };
}

function frozen<T extends object>(value: T): T {
  for (const member of Object.values(value)) if (typeof member === 'object' && member !== null) frozen(member);
  return Object.freeze(value);
}
