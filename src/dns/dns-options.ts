import type { HostnamePattern } from '#contracts/policy-model.js';

export type Endpoint = { readonly host: string; readonly port: number };

export type DnsOptions = {
  readonly listen: readonly Endpoint[];
  /**
   * Whether the proxy also answers queries that clients address to other DNS servers. The datapath diverts
   * these queries to the proxy.
   */
  readonly transparent: boolean;
  readonly upstreams: readonly Endpoint[];
  /** The order in which the proxy queries the upstreams that respond. */
  readonly upstreamOrder: 'listed' | 'fastest';
  readonly deniedResponse: 'nxdomain' | 'refused';
  readonly minGrantMs: number;
  readonly maxGrantMs: number;
  readonly cacheBytes: number;
  /**
   * For this time after its expiry, in milliseconds, the proxy still serves a cached answer if the upstreams
   * return no answer, or an error other than NXDOMAIN. With 0, the proxy serves no expired answers.
   */
  readonly serveStaleMs: number;
  /**
   * The packet mark (`SO_MARK`) of all packets that the proxy sends to upstreams and clients; 0 sets no mark.
   */
  readonly mark: number;
  readonly rebindProtection: boolean;
  /** Hostname patterns of names that may resolve to non-public addresses. */
  readonly rebindAllow: readonly HostnamePattern[];
  /**
   * The client gets SERVFAIL if the grants that its answer needs are not in force within this time, in
   * milliseconds. The default is 100 (D12).
   */
  readonly grantTimeoutMs?: number;
  /** The proxy closes a TCP connection that is idle for this time in milliseconds. The default is 10,000. */
  readonly tcpIdleMs?: number;
};

/**
 * An address and port on which the proxy listens, both in host byte order. `isTransparent`: the datapath
 * diverts queries for other DNS servers to this address.
 */
export type ListenAt = {
  readonly address: number;
  readonly port: number;
  readonly isTransparent: boolean;
  readonly mark: number;
};

export function textOf({ host, port }: Endpoint): string {
  return `${host}:${port}`;
}
