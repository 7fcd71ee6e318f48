import { decode } from 'dns-packet';
import { describe, expect, test } from 'vitest';
import { formatAddress } from '#addresses/ip-address.js';
import { lookupsOf } from '#contracts/dns/dns-lookups.js';
import { compile } from '#policy/compile/compile.js';
import { lookUp, query, responseText, TcpClient } from './client.js';
import { alwaysAt, FakeUpstream } from './fake-upstream.js';
import { endpoint } from './loopback.js';
import { allowing, startProxy } from './proxy.js';
import { settled } from './settled.js';

const NAME = 'www.example.com';
const ADDRESS = '203.0.113.1';
const GOOD = ['NOERROR', `${NAME} A ${ADDRESS}`];
const DENIED = ['NXDOMAIN'];
/** Ports below the range of ephemeral ports. The process id keeps parallel test processes apart. */
let port = 10_000 + (process.pid % 8_000);
const at = (host = '::1') => ({ host, port: port++ });
const upstream = () => FakeUpstream.start(alwaysAt(ADDRESS));

describe('DNS proxy at an IPv6 address', () => {
  test('the DNS proxy answers an IPv6 client over UDP and TCP, and an IPv4 client at its IPv4 address', async () => {
    const listen = [at(), endpoint()];
    const rig = await startProxy([await upstream()], { listen }, allowing(['*'], ['0.0.0.0/0', '::/0']));
    expect(await Promise.all(listen.map((to) => lookUp(to, NAME)))).toEqual([GOOD, GOOD]);
    const client = await TcpClient.to(rig.at);
    client.send(query(NAME), query(NAME));
    await settled(() => client.responses, [GOOD, GOOD]);
    client.close();
    expect(rig.refused()).toEqual({});
  });

  test('the group of the IPv6 source decides a lookup, and the denial is reported with this source', async () => {
    const rig = await startProxy([await upstream()], { listen: [at()] }, allowing(['*'], ['::1']));
    expect(await lookUp(rig.at, NAME)).toEqual(GOOD);
    // An IPv4 source with the same number as ::1, all IPv4 sources, and the next IPv6 address.
    rig.proxy.resolver.use(allowing(['*'], ['0.0.0.1', '0.0.0.0/0', '::2'], 2));
    expect(await lookUp(rig.at, NAME)).toEqual(DENIED);
    const [seen, ...more] = rig.proxy.drainSeen().lookups;
    expect([seen && formatAddress(seen.source), seen?.hostname, seen?.generation, more]).toEqual(['::1', NAME, 2, []]);
  });

  test('a policy that was compiled without IPv6 denies each lookup of an IPv6 client', async () => {
    const program = compile({ groups: [], default: { action: 'allow', mode: 'enforce', from: 'fallback' } });
    const rig = await startProxy([await upstream()], { listen: [at()] }, lookupsOf(program, 1));
    expect(await lookUp(rig.at, NAME)).toEqual(DENIED);
  });

  test('the DNS proxy listens at all addresses of both families on the same port, and each client has the source of its family', async () => {
    const [all, every] = [at('::'), { host: '0.0.0.0', port: port - 1 }];
    await startProxy([await upstream()], { listen: [all, every] }, allowing(['*'], ['::/0']));
    expect(await lookUp({ ...all, host: '::1' }, NAME)).toEqual(GOOD);
    expect(await lookUp({ ...all, host: '127.0.0.1' }, NAME)).toEqual(DENIED);
  });

  test('a change of the settings adds and removes an IPv6 address', async () => {
    const [first, second] = [at(), at()];
    const rig = await startProxy([await upstream()], { listen: [first] }, allowing(['*'], ['::/0']));
    await rig.change({ listen: [first, second] });
    expect(await lookUp(second, NAME)).toEqual(GOOD);
    await rig.change({ listen: [second] });
    const client = await TcpClient.to(second);
    client.send(query(NAME));
    await settled(() => client.received.length, 1);
    expect(client.received.map((message) => responseText(decode(message)))).toEqual([GOOD]);
    client.close();
  });
});
