import { describe, expect, test } from 'vitest';
import { type Lookups, lookupsOf } from '#contracts/dns/dns-lookups.js';
import type { SeenLookup } from '#contracts/dns/seen-lookup.js';
import type { MemberList, MembershipChange, SelectorSet } from '#contracts/kubernetes/membership.js';
import type { DnsOptions, Endpoint } from '#dns/dns-options.js';
import type { DnsChange, DnsProxy } from '#dns/dns-proxy.js';
import { createDnsProxy } from '#dns/thread/dns-thread.js';
import { compile } from '#policy/compile/compile.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import { address, group, policy, rule, selector } from '#test/policy/sample.js';
import { lookUp } from './client.js';
import { FakeGrantReceiver } from './fake-grant-receiver.js';
import { alwaysAt, FakeUpstream } from './fake-upstream.js';
import { endpoint } from './loopback.js';
import { opened } from './opened.js';
import { allowing, dnsOptions, pattern } from './proxy.js';
import { settled } from './settled.js';

const NAME = 'www.example.com';
const ADDRESS = '203.0.113.1';
const GOOD = ['NOERROR', `${NAME} A ${ADDRESS}`];
const ONLY = allowing(['*.example.com']);
/** Invalid DNS rules. The DNS thread ends with an error when it receives these rules. */
const DEADLY = { generation: 1, patterns: [], tables: {} } as unknown as Lookups;

type Threaded = { readonly proxy: DnsProxy; readonly changes: DnsChange[]; readonly at: Endpoint };

async function threaded(given: Partial<DnsOptions> = {}, members?: () => MemberList): Promise<Threaded> {
  const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
  const options = dnsOptions([upstream], given);
  const proxy = createDnsProxy(options, undefined, members);
  opened(() => proxy.close());
  const changes: DnsChange[] = [];
  proxy.watch((change) => changes.push(change));
  const [at = endpoint()] = options.listen;
  return { proxy, changes, at };
}

/** Returns a change: the client's address gets the set of selectors with this number. */
function clientIs(number: number, added: readonly SelectorSet[] = []): MembershipChange {
  return { added, addresses: [address('127.0.0.1')], sets: Uint32Array.of(number), dropped: [] };
}

/** Waits until the DNS thread has handled all messages that were sent before. */
async function handled(proxy: DnsProxy): Promise<void> {
  await proxy.stats();
}

describe('DNS proxy thread', () => {
  test('the DNS proxy thread answers by the current DNS rules, and requests grants (permissions for answered addresses) through the MessagePort of `setGrantPort`', async () => {
    const { proxy, at, changes } = await threaded();
    await proxy.open();
    expect(await lookUp(at, NAME)).toEqual(['SERVFAIL']);
    proxy.use(ONLY);
    await handled(proxy);
    expect(await lookUp(at, NAME)).toEqual(['SERVFAIL']);
    expect((await proxy.stats()).refused).toEqual({ not_granted: 1 });
    const grantor = new FakeGrantReceiver();
    proxy.setGrantPort(grantor.port);
    await handled(proxy);
    expect(await lookUp(at, NAME)).toEqual(GOOD);
    expect(grantor.grants).toEqual([`*.example.com ${ADDRESS}`]);
    expect((await proxy.names()).map(({ hostname }) => hostname)).toEqual([NAME]);
    expect(changes).toEqual([]);
  });

  test('the DNS proxy thread reports denied queries to an observer', async () => {
    const { proxy, at } = await threaded();
    const denied: SeenLookup[] = [];
    const stop = proxy.observe(({ lookups }) => denied.push(...lookups));
    proxy.use(ONLY);
    await proxy.open();
    expect(await lookUp(at, 'other.test')).toEqual(['NXDOMAIN']);
    await settled(() => denied.map(({ hostname, count }) => [hostname, count]), [['other.test', 1]]);
    stop();
  });

  test('the DNS proxy thread reports which resolvers are alive and which are dead', async () => {
    const { host, port } = endpoint();
    const { proxy, changes, at } = await threaded({ upstreams: [{ host, port }] });
    proxy.use(ONLY);
    await proxy.open();
    const names = ['a', 'b', 'c'].map((label) => `${label}.example.com`);
    expect(await Promise.all(names.map((name) => lookUp(at, name)))).toEqual(names.map(() => ['SERVFAIL']));
    await settled(() => changes, [{ type: 'upstreams_changed', alive: [], dead: [`${host}:${port}`] }]);
    expect((await proxy.stats()).upstreams).toMatchObject([{ address: `${host}:${port}`, alive: false }]);
  });

  test('the DNS proxy thread reports its unexpected end once, rejects pending calls, and can then be opened again at the same address', async () => {
    const { proxy, changes, at } = await threaded();
    await proxy.open();
    const first = new FakeGrantReceiver();
    proxy.setGrantPort(first.port);
    await handled(proxy);
    proxy.use(DEADLY);
    await expect(proxy.stats()).rejects.toThrow(/undefined/);
    await settled(() => changes.map(({ type }) => type), ['worker_died']);
    await expect(proxy.names()).rejects.toThrow('the DNS proxy is not open');
    proxy.use(ONLY);
    await proxy.open();
    const grantor = new FakeGrantReceiver();
    proxy.setGrantPort(grantor.port);
    await handled(proxy);
    expect(await lookUp(at, NAME)).toEqual(GOOD);
    expect(grantor.grants).toEqual([`*.example.com ${ADDRESS}`]);
    expect(changes.map(({ type }) => type)).toEqual(['worker_died']);
  });

  test('the DNS proxy thread still has the current DNS rules after a second call of `open`', async () => {
    const { proxy, at, changes } = await threaded();
    proxy.use(ONLY);
    await proxy.open();
    await proxy.open();
    expect(await lookUp(at, 'other.test')).toEqual(['NXDOMAIN']);
    expect(changes).toEqual([]);
  });

  test('the DNS proxy thread decides by the current Kubernetes members after each change, also after the thread was started again', async () => {
    const web = selector('web');
    const set = { number: 1, keys: [web.key] };
    const membership = {
      scope: { resolved: new Set(set.keys), podNetworks: [], networks: new Map() },
      list: clientIs(1, [set]),
    };
    const allowed = group([], [rule({ hostname: pattern('*.example.com'), protocol: 6 })], { selectors: [web] });
    const record = new MemberRecord();
    const { proxy, at } = await threaded({}, () => record.list());
    proxy.use(lookupsOf(compile(policy([allowed]), { membership }), 1));
    await proxy.replaceMembers(membership.list);
    await proxy.open();
    const verdict = async (): Promise<string> => ((await lookUp(at, NAME))[0] === 'NXDOMAIN' ? 'deny' : 'allow');
    expect(await verdict()).toBe('deny');
    record.replace(membership.list);
    await proxy.replaceMembers(membership.list);
    expect(await verdict()).toBe('allow');
    await proxy.open();
    expect(await verdict()).toBe('allow');
    record.change(clientIs(0));
    await proxy.changeMembers(clientIs(0));
    expect(await verdict()).toBe('deny');
    await proxy.open();
    expect(await verdict()).toBe('deny');
    proxy.use(DEADLY);
    await proxy.changeMembers(clientIs(1));
    await proxy.close();
  });

  test('the DNS proxy thread fails to open while another proxy uses its address, and can open after the other proxy is closed', async () => {
    const listen = [endpoint(), endpoint()];
    const other = await threaded({ listen: listen.slice(1) });
    await other.proxy.open();
    const { proxy, at } = await threaded({ listen });
    proxy.use(ONLY);
    await expect(proxy.open()).rejects.toThrow('EADDRINUSE');
    await other.proxy.close();
    await proxy.open();
    expect(await lookUp(at, 'other.test')).toEqual(['NXDOMAIN']);
  });

  test('the DNS proxy thread releases its listen address when it is closed', async () => {
    const { proxy, at } = await threaded();
    await proxy.open();
    await proxy.close();
    const other = await threaded({ listen: [at] });
    other.proxy.use(ONLY);
    await other.proxy.open();
    expect(await lookUp(at, 'other.test')).toEqual(['NXDOMAIN']);
  });
});
