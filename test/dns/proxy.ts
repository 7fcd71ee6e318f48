import { type Lookups, lookupsOf } from '#contracts/dns-lookups.js';
import type { HostnamePattern } from '#contracts/policy-model.js';
import type { DnsOptions, Endpoint } from '#dns/dns-options.js';
import type { DnsStats } from '#dns/dns-proxy.js';
import { LocalDnsProxy } from '#dns/local-dns-proxy.js';
import { compile } from '#policy/compile/compile.js';
import { parseHostname } from '#policy/model/hostname.js';
import { group, policy, rule } from '#test/policy/sample.js';
import type { FakeUpstream } from './fake-upstream.js';
import { Grantor } from './grantor.js';
import { endpoint } from './loopback.js';
import { opened } from './opened.js';

export function pattern(text: string): HostnamePattern {
  const parsed = parseHostname(text);
  if (!('pattern' in parsed)) throw new Error(parsed.fault);
  return parsed.pattern;
}

/** Allows all sources every name that matches one of the patterns. */
export function allowing(
  patterns: readonly string[],
  sources: readonly string[] = ['0.0.0.0/0'],
  generation = 1,
): Lookups {
  const rules = patterns.map((text) => rule({ hostname: pattern(text), protocol: 6 }));
  return lookupsOf(compile(policy([group(sources, rules)])), generation);
}

export function dnsOptions(
  upstreams: readonly { readonly at: Endpoint }[],
  given: Partial<DnsOptions> = {},
): DnsOptions {
  return {
    listen: [endpoint()],
    transparent: false,
    upstreams: upstreams.map(({ at }) => at),
    upstreamOrder: 'listed',
    deniedResponse: 'nxdomain',
    minGrantMs: 60_000,
    maxGrantMs: 86_400_000,
    cacheBytes: 1 << 20,
    serveStaleMs: 0,
    mark: 0,
    rebindProtection: true,
    // The tests use addresses reserved for documentation.
    rebindAllow: [pattern('*')],
    // The simulated datapath runs in the same thread, which may be slow.
    grantTimeoutMs: 2_000,
    ...given,
  };
}

export type Rig = {
  readonly at: Endpoint;
  readonly proxy: LocalDnsProxy;
  readonly grantor: Grantor;
  /** The live upstreams, recorded at each change. */
  readonly alive: (readonly string[])[];
  /** The refusal counters, by reason. */
  readonly refused: () => DnsStats['refused'];
};

/** Starts a proxy that by default allows every name and grants every address. */
export async function startProxy(
  upstreams: readonly Pick<FakeUpstream, 'at'>[],
  options: Partial<DnsOptions> = {},
  lookups: Lookups | null = allowing(['*']),
): Promise<Rig> {
  const all = dnsOptions(upstreams, options);
  const alive: (readonly string[])[] = [];
  const proxy = new LocalDnsProxy(all, (now) => alive.push(now));
  opened(() => proxy.close());
  await proxy.open();
  const grantor = new Grantor();
  proxy.granter.use(grantor.port);
  if (lookups !== null) proxy.resolver.use(lookups);
  const [at = { host: '', port: 0 }] = all.listen;
  return { at, proxy, grantor, alive, refused: () => proxy.stats().refused };
}
