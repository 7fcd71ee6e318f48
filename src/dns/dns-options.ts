import type { HostnamePattern } from '#contracts/policy-model.js';

export type Endpoint = { readonly host: string; readonly port: number };

export type DnsOptions = {
  readonly listen: readonly Endpoint[];
  /** Whether the proxy also serves lookups to other servers, which the datapath diverts to it. */
  readonly transparent: boolean;
  readonly upstreams: readonly Endpoint[];
  /** The order in which live upstreams are queried. */
  readonly upstreamOrder: 'listed' | 'fastest';
  readonly deniedResponse: 'nxdomain' | 'refused';
  readonly minGrantMs: number;
  readonly maxGrantMs: number;
  readonly cacheBytes: number;
  /** How long an expired answer is served if no upstream answers; 0: never. */
  readonly serveStaleMs: number;
  /** The mark of packets to upstreams; 0: none. */
  readonly mark: number;
  readonly rebindProtection: boolean;
  /** Names that may resolve to non-public addresses. */
  readonly rebindAllow: readonly HostnamePattern[];
  /** A lookup fails if its addresses are not granted within this time; default 100 (D12). */
  readonly grantTimeoutMs?: number;
  /** An idle TCP connection is closed after this time; default 10,000. */
  readonly tcpIdleMs?: number;
};

/** A listening address, in host byte order. */
export type ListenAt = {
  readonly address: number;
  readonly port: number;
  readonly isTransparent: boolean;
  readonly mark: number;
};

export function textOf({ host, port }: Endpoint): string {
  return `${host}:${port}`;
}
