import { type Lookups, lookupsOf } from '#contracts/dns/dns-lookups.js';
import type { DnsStats } from '#contracts/dns/dns-stats.js';
import type { HostnamePattern } from '#contracts/policy/policy-model.js';
import type { DnsOptions, Endpoint } from '#dns/dns-options.js';
import { socketsOf } from '#dns/listeners/dns-sockets.js';
import { LocalDnsProxy } from '#dns/thread/local-dns-proxy.js';
import { compile } from '#policy/compile/compile.js';
import { parseHostname } from '#policy/model/names/hostname.js';
import { ListeningSockets } from '#sockets/listening/listening-sockets.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { FakeGrantReceiver } from './fake-grant-receiver.js';
import type { FakeUpstream } from './fake-upstream.js';
import { endpoint } from './loopback.js';
import { opened } from './opened.js';

export function pattern(text: string): HostnamePattern {
  const parsed = parseHostname(text);
  if (!('pattern' in parsed)) throw new Error(parsed.fault);
  return parsed.pattern;
}

/** Compiles DNS rules that allow the sources to query every name that matches a pattern of `patterns`. */
export function allowing(
  patterns: readonly string[],
  sources: readonly string[] = ['0.0.0.0/0'],
  generation = 1,
): Lookups {
  const rules = patterns.map((text) => rule({ hostname: pattern(text), protocol: 6 }));
  return lookupsOf(compile(policy([group(sources, rules)]), { ipv6: true }), generation);
}

export function dnsOptions(
  upstreams: readonly { readonly at: Endpoint }[],
  given: Partial<DnsOptions> = {},
): DnsOptions {
  return {
    listen: [endpoint()],
    transparent: false,
    grantsIpv6: false,
    upstreams: upstreams.map(({ at }) => at),
    upstreamOrder: 'listed',
    deniedResponse: 'nxdomain',
    minGrantMs: 60_000,
    maxGrantMs: 86_400_000,
    cacheBytes: 1 << 20,
    serveStaleMs: 0,
    mark: 0,
    rebindProtection: true,
    // The pattern `*` exempts all names. Otherwise rebind protection would remove the documentation addresses
    // that the tests use.
    rebindAllow: [pattern('*')],
    canaryNames: [],
    // A long timeout, because the fake datapath shares a thread with the proxy and may reply late.
    grantTimeoutMs: 2_000,
    ...given,
  };
}

export type DnsProxyRig = {
  readonly at: Endpoint;
  readonly proxy: LocalDnsProxy;
  readonly grantor: FakeGrantReceiver;
  /** The addresses of the resolvers that are alive, recorded at each change. */
  readonly alive: (readonly string[])[];
  /** Changes some options of the running DNS proxy. */
  readonly change: (settings: Partial<DnsOptions>) => Promise<void>;
  /** The counters of refused messages and records, by reason. */
  readonly refused: () => DnsStats['refused'];
};

/**
 * Starts a DNS proxy with a fake datapath. By default the policy allows every name, and every address is
 * granted.
 */
export async function startProxy(
  upstreams: readonly Pick<FakeUpstream, 'at'>[],
  options: Partial<DnsOptions> = {},
  lookups: Lookups | null = allowing(['*']),
  waitMs = 0,
): Promise<DnsProxyRig> {
  const all = dnsOptions(upstreams, options);
  const alive: (readonly string[])[] = [];
  const proxy = new LocalDnsProxy(all, (now) => alive.push(now));
  opened(() => proxy.close());
  const sockets = new ListeningSockets();
  opened(async () => sockets.close('dns'));
  await proxy.open(sockets.open('dns', socketsOf(all)).descriptors, waitMs);
  const grantor = new FakeGrantReceiver();
  proxy.setGrantPort(grantor.port);
  if (lookups !== null) proxy.resolver.use(lookups);
  const [at = { host: '', port: 0 }] = all.listen;
  const change = (settings: Partial<DnsOptions>): Promise<void> => {
    const next = { ...all, ...settings };
    return sockets.change('dns', socketsOf(next), (descriptors) => proxy.change(next, descriptors));
  };
  return { at, proxy, grantor, alive, change, refused: () => proxy.stats().refused };
}
