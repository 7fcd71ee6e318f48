import type { ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES, type Namespace, type NamespaceCommands } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { IPPROTO, type Policy } from '#contracts/policy/policy-model.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { samplesOf } from '#policy/proof/proof-sample.js';
import { MORE_FRAGMENTS } from '#test/dataplane/frame.js';
import { type Ipv6FrameOptions, NEXT, optionHeader } from '#test/dataplane/ipv6-frame.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { type BridgedTopology, createBridge } from './bridged.js';
import { datapathOptions } from './datapath-options.js';
import { addFar, addIpv6, FAR, IPV6 } from './ipv6.js';
import { ipv6Address, ipv6Frame, ipv6Packet } from './ipv6-frames.js';
import { enterNamespace } from './namespace.js';
import { defaultOnly } from './policies.js';
import { topologyOfFile } from './topology-of-file.js';
import { Wire } from './wire.js';

const HTTP = 8_000;
/** A second port of HTTP, to which the policies allow IPv4 alone. */
const ONLY_IPV4 = 8_001;
const BYTES = 4 << 20;
const ROUTER_ALERT = { kind: NEXT.hopByHop, bytes: [0, 0, 5, 2, 0, 0, 1, 0] };

/**
 * Serves HTTP on the two ports (`PUT` answers the number of bytes of the body, `GET /big` has a large body),
 * and DNS over UDP and TCP, which answers each question with the AAAA record 2001:db8::53.
 */
const SERVER = `
  const http = require('node:http'), net = require('node:net'), dgram = require('node:dgram');
  const handle = (request, response) => {
    if (request.method !== 'PUT') return response.end(request.url === '/big' ? Buffer.alloc(${BYTES}, 'x') : 'hello');
    let bytes = 0;
    request.on('data', (data) => (bytes += data.length)).on('end', () => response.end(String(bytes)));
  };
  const answer = (query) => {
    let end = 12;
    while (query[end] !== 0) end += query[end] + 1;
    const reply = Buffer.concat([query.subarray(0, end + 5), Buffer.from('c00c001c00010000003c0010' + '20010db8' + '0'.repeat(22) + '53', 'hex')]);
    reply.set([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], 2);
    return reply;
  };
  const udp = dgram.createSocket('udp6').on('message', (query, from) => udp.send(answer(query), from.port, from.address));
  const tcp = net.createServer((socket) => socket.on('error', () => {}).once('data', (query) => {
    const reply = answer(query.subarray(2));
    socket.end(Buffer.concat([Buffer.from([reply.length >> 8, reply.length & 255]), reply]));
  }));
  const listen = (server, port) => new Promise((resolve) => server.listen(port, '::', resolve));
  const bound = new Promise((resolve) => udp.bind(53, '::', resolve));
  Promise.all([bound, listen(tcp, 53), ...[${HTTP}, ${ONLY_IPV4}].map((port) => listen(http.createServer(handle), port))])
    .then(() => console.log('ready'));`;

const topology = topologyOfFile('v6cli');
let far: Namespace;
let datapath: LocalDatapath | undefined;
let looking: NodeJS.Timeout | undefined;
let generation = 0;

async function serve(space: NamespaceCommands): Promise<ChildProcess> {
  const child = space.start(process.execPath, ['-e', SERVER]);
  await firstLine(child);
  return child;
}

beforeAll(async () => {
  await addIpv6(topology);
  far = await addFar(topology);
  await Promise.all([topology.server, far].map(serve));
});
afterAll(() => far?.remove());

/** Allows a source HTTP, DNS and echo requests, and IPv4 to a further port. */
function clientAllowed(source: string = IPV6.client): Policy {
  const rules = [
    rule({ id: 'http', protocol: IPPROTO.tcp, ports: [`${HTTP}`] }),
    rule({ id: 'dns', protocol: IPPROTO.udp, ports: ['53'] }),
    rule({ id: 'dns-tcp', protocol: IPPROTO.tcp, ports: ['53'] }),
    rule({ id: 'echo', protocol: IPPROTO.icmpv6, icmpTypes: [128] }),
    rule({ id: 'ipv4', protocol: IPPROTO.tcp, to: [ADDRESSES.server], ports: [`${ONLY_IPV4}`] }),
  ];
  return policy([group([source, ADDRESSES.client], rules)]);
}
function enforce(of: Policy, on = datapath): void {
  on?.stage(compile(of, { ipv6: true }), ++generation);
  on?.prove(samplesOf(of, { ipv6: true }));
  on?.flip();
}
function start(of: Policy, more: Partial<DatapathOptions> = {}): void {
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, { ipv6: 'enforce', ...more }));
  datapath.open();
  datapath.attach();
  enforce(of);
  // A node looks at the machine once a second. Direct forwarding ends without this.
  looking = setInterval(() => datapath?.look(), 500);
}
function stop(): void {
  clearInterval(looking);
  datapath?.close();
  datapath = undefined;
  detach(topology.pinPath);
}
const dropped = (reason: string): number => {
  const { drops } = datapath?.stats() ?? { drops: {} };
  return Number((drops as Record<string, { readonly packets: bigint }>)[reason]?.packets ?? 0n);
};

/** Runs curl on the client. Returns its standard output, or its exit code if it fails. */
async function curl(...words: readonly string[]): Promise<string> {
  const { code, stdout } = await topology.client.run('curl', '-sS', '--max-time', '10', ...words);
  return code === 0 ? stdout : `exit code ${code}`;
}
const fails = (...words: readonly string[]): Promise<string> => curl('--connect-timeout', '0.5', ...words);
const COULD_NOT_CONNECT = 'exit code 28';
const url = (host: string, path = '', port = HTTP): string => `http://[${host}]:${port}/${path}`;
const downloads = (host: string): Promise<string> =>
  curl('-o', '/dev/null', '-w', '%{size_download}', url(host, 'big'));
/** Sends a large body. Returns the number of bytes that the server has received. */
async function upload(host: string): Promise<string> {
  const script = `head -c ${BYTES} /dev/zero | curl -sS --max-time 20 -T - -H Expect: '${url(host)}'`;
  return (await topology.client.run('sh', '-c', script)).stdout;
}
async function pings(...words: readonly string[]): Promise<string> {
  return (await topology.client.run('ping', '-6', '-n', '-c', '1', '-W', '2', ...words)).stdout;
}
const forgetMtu = (): Promise<string> => topology.client.must('ip', '-6', 'route', 'flush', 'cache');
const pathMtu = async (host: string): Promise<string | undefined> =>
  /mtu (\d+)/.exec(await topology.client.must('ip', '-6', 'route', 'get', host))?.[1];

describe.each(['stack', 'direct'] as const)('clients of IPv6 with forwarding: %s', (forwarding) => {
  beforeAll(() => start(clientAllowed(), { forwarding }));
  afterAll(stop);

  test(`clients of IPv6 transfer files by HTTP in both directions, and a denied port stays closed (${forwarding})`, async () => {
    expect(await curl(url(IPV6.server))).toBe('hello');
    expect(await downloads(IPV6.server)).toBe(String(BYTES));
    expect(await upload(IPV6.server)).toBe(String(BYTES));
    expect(await fails(url(IPV6.server, '', ONLY_IPV4))).toBe(COULD_NOT_CONNECT);
    expect(dropped('policy_deny')).toBeGreaterThan(0);
  });

  test(`clients of IPv6 ask a DNS server over UDP and TCP (${forwarding})`, async () => {
    const ask = (...more: readonly string[]): Promise<string> =>
      topology.client.must('dig', '-6', `@${IPV6.server}`, 'www.example', 'AAAA', '+short', '+time=5', ...more);
    expect([await ask('+notcp'), await ask('+tcp')]).toEqual(['2001:db8::53\n', '2001:db8::53\n']);
  });

  test(`clients of IPv6 get replies to pings in one packet and in fragments (${forwarding})`, async () => {
    for (const size of ['56', '4000', '60000'])
      expect(await pings('-s', size, IPV6.server)).toContain(' 0% packet loss');
    expect([dropped('fragment'), dropped('fragment_overlap'), dropped('malformed')]).toEqual([0, 0, 0]);
  });

  test(`clients of IPv6 send packets of a flow by the path that the setting names (${forwarding})`, async () => {
    const forwarded = async (): Promise<number> =>
      Number(/Ip6OutForwDatagrams\s+(\d+)/.exec(await topology.node.must('cat', '/proc/net/snmp6'))?.[1]);
    const before = await forwarded();
    expect(await pings('-c', '20', '-i', '0.02', IPV6.server)).toContain('20 received');
    const byStack = (await forwarded()) - before;
    if (forwarding === 'stack') expect(byStack).toBeGreaterThanOrEqual(40);
    else expect(byStack).toBeLessThan(10);
  });

  test(`clients of IPv6 learn each router of a path by the hop limit (${forwarding})`, async () => {
    const seen = [];
    for (const hops of ['1', '2', '3'])
      seen.push(/[Ff]rom ([0-9a-f:]+)[: ]/.exec(await pings('-t', hops, FAR.host))?.[1]);
    expect(seen.map((address) => address?.replace(/:$/, ''))).toEqual([IPV6.nodeLan, IPV6.server, FAR.host]);
  });

  test(`clients of IPv6 transfer files over a link of MTU 1280 behind the node (${forwarding})`, async () => {
    await forgetMtu();
    expect(await upload(FAR.host)).toBe(String(BYTES));
    expect(await pathMtu(FAR.host)).toBe('1280');
    expect(await downloads(FAR.host)).toBe(String(BYTES));
  });

  test(`clients of IPv6 transfer files over a link of MTU 1280 at the node (${forwarding})`, async () => {
    await forgetMtu();
    await topology.node.must('ip', 'link', 'set', 'wan0', 'mtu', '1280');
    onTestFinished(async () => void (await topology.node.must('ip', 'link', 'set', 'wan0', 'mtu', '1500')));
    expect(await upload(IPV6.server)).toBe(String(BYTES));
    expect(await pathMtu(IPV6.server)).toBe('1280');
  });

  test(`clients of IPv6 fall back to IPv4 if the policy denies IPv6 (${forwarding})`, async () => {
    const connect = (port: number): Promise<string> => {
      const resolve = `www.example:${port}:[${IPV6.server}],${ADDRESSES.server}`;
      return curl('-o', '/dev/null', '-w', '%{remote_ip}', '--resolve', resolve, `http://www.example:${port}/`);
    };
    expect([await connect(HTTP), await connect(ONLY_IPV4)]).toEqual([IPV6.server, ADDRESSES.server]);
  });

  test(`clients of IPv6 connect at once while all neighbour caches are empty (${forwarding})`, async () => {
    const { client, node, server } = topology;
    const resent = async (): Promise<string | undefined> => {
      const [names = [], values = []] = (await client.must('grep', '^Tcp:', '/proc/net/snmp'))
        .split('\n')
        .map((line) => line.split(' '));
      return values[names.indexOf('RetransSegs')];
    };
    for (const space of [client, node, server]) await space.must('ip', '-6', 'neigh', 'flush', 'all');
    const before = await resent();
    expect(await curl(url(IPV6.server))).toBe('hello');
    expect(await resent()).toBe(before);
  });
});

describe('the link of a policed interface', () => {
  afterEach(stop);

  async function wireOf(space: NamespaceCommands): Promise<Wire> {
    const wire = new Wire(
      space.name,
      Number((await space.must('ip', '-o', 'link', 'show', 'dev', 'eth0')).split(':')[0]),
    );
    onTestFinished(() => wire.close());
    return wire;
  }

  test('under a policy that denies everything, neighbour discovery messages reach the node, and the node answers its neighbours', async () => {
    start(defaultOnly('deny'));
    const { client, node } = topology;
    const types = [
      ['nd-router-solicit', 133, 'ff02::2', { hopLimit: 255 }],
      ['nd-neighbor-solicit', 135, 'ff02::1:ff00:7777', { hopLimit: 255 }],
      ['nd-neighbor-advert', 136, 'ff02::1', { hopLimit: 255 }],
      ['mld2-listener-report', 143, 'ff02::16', { hopLimit: 1, extensions: [ROUTER_ALERT] }],
    ] as const;
    const rules = types.map(([name]) => `icmpv6 type ${name} counter comment "${name}"`);
    const chain = `type filter hook prerouting priority -400; ${rules.join('; ')};`;
    await node.must('nft', `table ip6 seen { chain pre { ${chain} }; }`);
    onTestFinished(async () => void (await node.must('nft', 'delete table ip6 seen')));
    const wire = await wireOf(client);
    for (const [, icmpType, to, options] of types) {
      const packet = ipv6Packet('fe80::66', to, { protocol: IPPROTO.icmpv6, icmpType });
      for (let count = 0; count < 50; count++) wire.send(ipv6Frame(packet, { ...options, payloadBytes: 16 }));
    }
    const counts = async (): Promise<Record<string, boolean>> => {
      const text = await node.must('nft', 'list', 'table', 'ip6', 'seen');
      const found = text.matchAll(/packets (\d+) bytes \d+ comment "(.*?)"/g);
      return Object.fromEntries([...found].map(([, count, name]) => [name ?? '', Number(count) >= 50]));
    };
    await expect.poll(counts).toEqual(Object.fromEntries(types.map(([name]) => [name, true])));
    await client.must('ip', '-6', 'neigh', 'flush', 'all');
    expect(await pings(IPV6.nodeLan)).toContain(' 0% packet loss');
    expect(await pings(IPV6.server)).toContain(' 100% packet loss');
  });

  test('after a change of the IPv6 prefix, packets from the old prefix are dropped as forged, and those from the new prefix are denied until the policy contains it', async () => {
    const [oldClient, newClient, newNode] = [IPV6.client, 'fd78:1::2', 'fd78:1::1'];
    start(clientAllowed());
    const { client, node } = topology;
    const flow = client.start(process.execPath, [
      '-e',
      `const socket = require('node:net').connect({ host: '${IPV6.server}', port: ${HTTP} }, () => console.log('open'));
       socket.on('error', (error) => { console.log(error.code); process.exit(); });
       setInterval(() => socket.write('GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'), 50);`,
    ]);
    expect(await firstLine(flow)).toBe('open');
    const renumber = async (from: string, to: string, router: string, formerRouter: string): Promise<void> => {
      await node.must('ip', 'addr', 'del', `${formerRouter}/64`, 'dev', 'lan0');
      await node.must('ip', 'addr', 'add', `${router}/64`, 'dev', 'lan0', 'nodad');
      await client.must('ip', 'addr', 'del', `${from}/64`, 'dev', 'eth0');
      await client.must('ip', 'addr', 'add', `${to}/64`, 'dev', 'eth0', 'nodad');
      await client.must('ip', '-6', 'route', 'replace', 'default', 'via', router);
    };
    await renumber(oldClient, newClient, newNode, IPV6.nodeLan);
    onTestFinished(() => renumber(newClient, oldClient, IPV6.nodeLan, newNode));
    expect(await fails(url(IPV6.server))).toBe(COULD_NOT_CONNECT);
    expect(dropped('policy_deny')).toBeGreaterThan(0);

    const before = dropped('spoofed_source');
    await client.must('ip', 'addr', 'add', `${oldClient}/128`, 'dev', 'eth0', 'nodad');
    expect(await fails('--interface', oldClient, url(IPV6.server))).toBe(COULD_NOT_CONNECT);
    await client.must('ip', 'addr', 'del', `${oldClient}/128`, 'dev', 'eth0');
    expect(dropped('spoofed_source')).toBeGreaterThan(before);

    enforce(clientAllowed(newClient));
    expect(await curl(url(IPV6.server))).toBe('hello');
    flow.kill('SIGKILL');
  });

  test('an interface that gets IPv6 addresses later is policed, and a forwarding node accepts router advertisements with accept_ra: 2', async () => {
    const { node, server } = topology;
    const set = (key: string, value: number): Promise<string> =>
      node.must('sh', '-c', `echo ${value} > /proc/sys/net/ipv6/conf/wan0/${key}`);
    await set('disable_ipv6', 1);
    start(clientAllowed());
    expect(await fails(url(IPV6.server))).not.toBe('hello');
    await set('disable_ipv6', 0);
    await set('accept_ra', 2);
    onTestFinished(async () => {
      await set('accept_ra', 1);
      await addIpv6(topology);
      await node.must('ip', '-6', 'route', 'replace', 'fd77:3::/64', 'via', IPV6.server);
    });
    // The prefix of the WAN, for 1 h, and a default route by the server.
    const prefix = [3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0, ...bytesOf('fd77:2::')];
    const content = Uint8Array.of(134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, ...prefix);
    const packet = ipv6Packet('fe80::2', 'ff02::1', { protocol: IPPROTO.icmpv6, icmpType: 134 });
    const wire = await wireOf(server);
    await expect
      .poll(
        async () => {
          wire.send(ipv6Frame(packet, { hopLimit: 255, content }));
          return node.must('ip', '-6', 'route', 'show', 'dev', 'wan0', 'proto', 'ra');
        },
        { interval: 100 },
      )
      .toContain('default via fe80::2');
    await expect
      .poll(() => node.must('ip', '-6', 'addr', 'show', 'dev', 'wan0', 'scope', 'global', '-tentative'))
      .toContain('fd77:2::');
    const [own = ''] =
      /fd77:2::?[0-9a-f:]+/.exec(await node.must('ip', '-6', 'addr', 'show', 'dev', 'wan0', 'scope', 'global')) ?? [];
    await server.must('ip', '-6', 'route', 'replace', 'fd77:1::/64', 'via', own);
    onTestFinished(async () => void (await server.must('ip', '-6', 'route', 'del', 'fd77:1::/64')));
    await expect.poll(() => curl(url(IPV6.server))).toBe('hello');
    expect(await fails(url(IPV6.server, '', ONLY_IPV4))).toBe(COULD_NOT_CONNECT);
  });
});

function bytesOf(address: string): number[] {
  return Array.from({ length: 16 }, (_, index) => Number((ipv6Address(address) >> BigInt(120 - 8 * index)) & 0xffn));
}

describe('rogue routers and DHCPv6 servers behind a policed bridge port', () => {
  const LINK = { hopLimit: 255 };
  let bridged: BridgedTopology;
  let leave: () => void;
  let ports: LocalDatapath;

  beforeAll(async () => {
    bridged = await createBridge('v6rogue');
    leave = enterNamespace(bridged.topology.node.name);
    const interfaces = ['lan0', 'wan0', 'lan1'];
    ports = new LocalDatapath(
      datapathOptions(bridged.topology.pinPath, { interfaces, ipv6: 'enforce', routerPorts: ['wan0'] }),
    );
    ports.open();
    ports.attach();
    enforce(policy([group(['fe80::/10'], [rule()])]), ports);
  });
  afterAll(async () => {
    ports?.close();
    if (bridged !== undefined) detach(bridged.topology.pinPath);
    leave?.();
    await bridged?.remove();
  });

  /** Returns 16 bytes that differ for each name: `send` recognises a frame by its last 16 bytes. */
  const hash = (name: string): Buffer => createHash('md5').update(name).digest();
  /** Returns an ICMPv6 message whose last option (of type 253) has the hash of `name`. */
  function message(name: string, icmpType: number, options: Ipv6FrameOptions = {}, before = 12): Uint8Array {
    const content = Uint8Array.of(
      icmpType,
      0,
      0,
      0,
      ...new Uint8Array(before),
      253,
      3,
      ...new Uint8Array(6),
      ...hash(name),
    );
    const packet = ipv6Packet('fe80::66', 'ff02::1', { protocol: IPPROTO.icmpv6, icmpType });
    return ipv6Frame(packet, { ...LINK, content, ...options });
  }
  function dhcp(name: string, options: Ipv6FrameOptions = {}): Uint8Array {
    const ports = { sourcePort: 547, destinationPort: 546 };
    const frame = ipv6Frame(ipv6Packet('fe80::66', 'fe80::77', ports), { payloadBytes: 24, ...options });
    frame.set(hash(name), frame.length - 16);
    return frame;
  }
  const frames: Readonly<Record<string, Uint8Array>> = {
    advertisement: message('advertisement', 134),
    'advertisement after hop-by-hop options': message('after hop', 134, { extensions: [optionHeader(NEXT.hopByHop)] }),
    'advertisement after destination options': message('after destination', 134, {
      extensions: [optionHeader(NEXT.destination), optionHeader(NEXT.destination, 3)],
    }),
    'advertisement in an atomic fragment': message('atomic', 134, { fragment: 0, id: 1 }),
    'first fragment of an advertisement': message('first', 134, { fragment: MORE_FRAGMENTS, id: 2 }),
    'later fragment of an advertisement': message('later', 134, { fragment: 5, id: 2 }),
    'first fragment without the chain of headers': message('no chain', 134, {
      ...{
        fragment: MORE_FRAGMENTS,
        id: 3,
        fragmented: [{ kind: NEXT.destination, bytes: [0, 20, 0, 0, 0, 0, 0, 0] }],
      },
      content: hash('no chain'),
    }),
    'advertisement of a low hop limit': message('low', 134, { hopLimit: 64 }),
    redirect: message('redirect', 137, {}, 36),
    'DHCPv6 advertise': dhcp('dhcp'),
    'DHCPv6 advertise after destination options': dhcp('dhcp after', { extensions: [optionHeader(NEXT.destination)] }),
    'neighbour advertisement': message('neighbour', 136, {}, 20),
    'neighbour solicitation': message('solicitation', 135, {}, 20),
    'echo request': message('echo', 128),
  };
  const HARMLESS = ['neighbour advertisement', 'neighbour solicitation', 'echo request'];

  test('messages of rogue IPv6 routers and DHCPv6 servers behind a policed bridge port reach neither another port nor the node', async () => {
    const { server, third, node } = await bridged.send('client', frames);
    // A denied multicast still reaches the node. Without its first fragment, no host uses a later one.
    expect({ server, third, node }).toEqual({
      ...{ server: HARMLESS, third: HARMLESS },
      node: ['later fragment of an advertisement', ...HARMLESS],
    });
  });

  test('a router and a DHCPv6 server behind a port in router_ports reach the other ports', async () => {
    const { client } = await bridged.send('server', frames);
    expect(client).toEqual(expect.arrayContaining(['advertisement', 'redirect', 'DHCPv6 advertise', ...HARMLESS]));
  });
});
