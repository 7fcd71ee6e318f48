import type { HostnamePattern } from '#contracts/policy-model.js';

export type Endpoint = { readonly host: string; readonly port: number };

export type DnsOptions = {
  readonly listen: readonly Endpoint[];
  /** Whether lookups are answered too that the datapath diverts on their way to other servers. */
  readonly transparent: boolean;
  readonly upstreams: readonly Endpoint[];
  /** Who of the upstreams that are alive is asked first. */
  readonly upstreamOrder: 'listed' | 'fastest';
  readonly deniedResponse: 'nxdomain' | 'refused';
  readonly minGrantMs: number;
  readonly maxGrantMs: number;
  readonly cacheBytes: number;
  /** For how long after its time an answer is given where no upstream has one; 0: never. */
  readonly serveStaleMs: number;
  /** Of packets to upstreams; 0: none. */
  readonly mark: number;
  readonly rebindProtection: boolean;
  /** Names that may be at addresses that are not public. */
  readonly rebindAllow: readonly HostnamePattern[];
  /** After this a lookup fails whose addresses are not granted; 100 unless told otherwise (D12). */
  readonly grantPatienceMs?: number;
  /** After this a TCP connection on which nothing moves is closed; 10,000 unless told otherwise. */
  readonly tcpIdleMs?: number;
};

/** Where queries come in; the address in host byte order. */
export type ListenAt = {
  readonly address: number;
  readonly port: number;
  readonly isTransparent: boolean;
  readonly mark: number;
};

export function textOf({ host, port }: Endpoint): string {
  return `${host}:${port}`;
}
