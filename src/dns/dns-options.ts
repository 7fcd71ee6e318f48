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
   * For how many milliseconds after its expiry an answer is still served if no upstream answers. With 0,
   * expired answers are never served.
   */
  readonly serveStaleMs: number;
  /** The packet mark (`SO_MARK`) of queries to upstreams; 0 sets no mark. */
  readonly mark: number;
  readonly rebindProtection: boolean;
  /** Hostname patterns of names that may resolve to non-public addresses. */
  readonly rebindAllow: readonly HostnamePattern[];
  /**
   * A lookup fails if the addresses of its answer are not granted within this time in milliseconds. The
   * default is 100 (D12).
   */
  readonly grantTimeoutMs?: number;
  /** The proxy closes a TCP connection that is idle for this time in milliseconds. The default is 10,000. */
  readonly tcpIdleMs?: number;
};

/** An address and port on which the proxy listens, both in host byte order. */
export type ListenAt = {
  readonly address: number;
  readonly port: number;
  readonly isTransparent: boolean;
  readonly mark: number;
};

export function textOf({ host, port }: Endpoint): string {
  return `${host}:${port}`;
}
