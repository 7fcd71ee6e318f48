import { isIPv6 } from 'node:net';
import type { DnsSettings } from '#contracts/config/config-reload.js';

export type Endpoint = { readonly host: string; readonly port: number };

/** Options of the DNS proxy. A reload can change the members of `DnsSettings`. */
export type DnsOptions = DnsSettings & {
  /**
   * Whether the proxy also answers queries that clients address to other DNS servers. The datapath diverts
   * these queries to the proxy.
   */
  readonly transparent: boolean;
  /**
   * Whether rules with names match IPv6 packets (`dataplane.ipv6: enforce`). If not, AAAA records are
   * removed.
   */
  readonly grantsIpv6: boolean;
  /** The packet mark (`SO_MARK`) of all packets that the proxy sends; 0 sets no mark. */
  readonly mark: number;
  /**
   * The client gets SERVFAIL if the grants that permit traffic to the answered addresses are not in force
   * within this time, in milliseconds. The default is 100 (D12).
   */
  readonly grantTimeoutMs?: number;
  /**
   * The proxy closes a TCP connection that is idle for this time in milliseconds. The default is 10,000.
   */
  readonly tcpIdleMs?: number;
};

export function textOf({ host, port }: Endpoint): string {
  return `${isIPv6(host) ? `[${host}]` : host}:${port}`;
}
