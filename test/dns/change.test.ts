import { describe, expect, test } from 'vitest';
import type { DnsOptions } from '#dns/dns-options.js';
import { lookUp } from './client.js';
import { alwaysAt, FakeUpstream, type ReceivedQuery } from './fake-upstream.js';
import { endpoint } from './loopback.js';
import { allowing, dnsOptions, pattern, startProxy } from './proxy.js';
import { settled } from './settled.js';

const FIRST = '203.0.113.1';
const SECOND = '203.0.113.2';
const answer = (name: string, address: string) => ['NOERROR', `${name} A ${address}`];

/** A proxy with one upstream, and a function that changes some of its options. */
async function changing(given: Partial<DnsOptions> = {}) {
  const upstream = await FakeUpstream.start(alwaysAt(FIRST));
  const listen = given.listen ?? [endpoint()];
  const options = dnsOptions([upstream], { ...given, listen });
  const rig = await startProxy([upstream], { ...given, listen });
  return { ...rig, upstream, options };
}

describe('a change of the settings of the DNS proxy', () => {
  test('after a change of upstreams, the DNS proxy sends new queries to the new upstream, and queries in progress get the answer of the former', async () => {
    const { at, upstream, change, proxy } = await changing();
    const other = await FakeUpstream.start(alwaysAt(SECOND));
    const waiting: ReceivedQuery[] = [];
    const { onQuery } = upstream;
    upstream.onQuery = (received) => void waiting.push(received);
    const early = lookUp(at, 'early.example.com');
    await settled(() => waiting.length, 1);
    await change({ upstreams: [other.at] });
    expect(await lookUp(at, 'late.example.com')).toEqual(answer('late.example.com', SECOND));
    for (const received of waiting) onQuery(received);
    expect(await early).toEqual(answer('early.example.com', FIRST));
    expect(proxy.stats().upstreams.map(({ address }) => address)).toEqual([`${other.at.host}:${other.at.port}`]);
  });

  test('a change of upstreams keeps the statistics of an upstream that is in both lists, and reports all upstreams', async () => {
    const { at, upstream, change, proxy, alive } = await changing();
    await lookUp(at, 'a.example.com');
    const other = await FakeUpstream.start(alwaysAt(SECOND));
    await change({ upstreams: [upstream.at, other.at] });
    const [kept, added] = proxy.stats().upstreams;
    expect([kept?.queries, added?.queries]).toEqual([1, 0]);
    expect(alive.at(-1)).toHaveLength(2);
  });

  test('a change of addresses makes the DNS proxy listen on an added address at once, and on a removed address for two more seconds', async () => {
    const { at, change } = await changing();
    const next = endpoint();
    await change({ listen: [next] });
    expect(await lookUp(next, 'a.example.com')).toEqual(answer('a.example.com', FIRST));
    expect(await lookUp(at, 'b.example.com')).toEqual(answer('b.example.com', FIRST));
    await change({ listen: [at] });
    await new Promise((resolve) => setTimeout(resolve, 2_300));
    expect(await lookUp(at, 'c.example.com')).toEqual(answer('c.example.com', FIRST));
  });

  test('a change of the DNS proxy whose new address cannot be bound changes nothing', async () => {
    const { at, change, upstream, options } = await changing();
    const other = await FakeUpstream.start(alwaysAt(SECOND));
    const free = endpoint();
    const changed = change({ listen: [at, free, upstream.at], upstreams: [other.at], deniedResponse: 'refused' });
    await expect(changed).rejects.toMatchObject({ code: 'EADDRINUSE' });
    expect(await lookUp(at, 'a.example.com')).toEqual(answer('a.example.com', FIRST));
    // The failed change had bound the address `free`, which must be free again.
    await change({ listen: [...options.listen, free] });
    expect(await lookUp(free, 'b.example.com')).toEqual(answer('b.example.com', FIRST));
  });

  test('a change of the denied response, of rebind protection or of the cache size applies to the next DNS lookups', async () => {
    const { at, change, proxy, options } = await changing({ rebindAllow: [pattern('*')] });
    await lookUp(at, 'a.example.com');
    expect(proxy.stats().cacheEntries).toBe(1);
    await change({ cacheBytes: options.cacheBytes * 2 });
    expect(proxy.stats().cacheEntries).toBe(1);
    await change({ cacheBytes: 1 });
    expect(proxy.stats().cacheEntries).toBe(0);
    await change({ rebindAllow: [] });
    expect(await lookUp(at, 'a.example.com')).toEqual(['NOERROR']);
    proxy.resolver.use(allowing(['*.other.test'], undefined, 2));
    await change({ deniedResponse: 'refused' });
    expect(await lookUp(at, 'a.example.com')).toEqual(['REFUSED']);
    await change({ deniedResponse: 'nxdomain' });
    expect(await lookUp(at, 'a.example.com')).toEqual(['NXDOMAIN']);
  });
});
