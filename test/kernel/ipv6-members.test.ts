import type { Socket } from 'node:dgram';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { parseAddress } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { MemberList, MembershipChange, SelectorSet } from '#contracts/kubernetes/membership.js';
import { type Address, IPPROTO } from '#contracts/policy/policy-model.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { samplesOf } from '#policy/proof/proof-sample.js';
import { group, policy, rule, selector } from '#test/policy/sample.js';
import { boundSocket } from './bound-socket.js';
import { datapathOptions } from './datapath-options.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { topologyOfFile } from './topology-of-file.js';

const [WEB_PORT, DB_PORT, CLIENT_PORT] = [8_000, 8_001, 40_000];
const addressOf = (text: string): Address => parseAddress(text) ?? 0;
const POD = { ipv4: addressOf(ADDRESSES.client), ipv6: addressOf(IPV6.client) };
const WEB: SelectorSet = { number: 1, keys: [selector('web').key] };
const DB: SelectorSet = { number: 2, keys: [selector('db').key] };
const to = (port: number) => [rule({ id: `to ${port}`, protocol: IPPROTO.udp, ports: [`${port}`] })];
const further = Array.from({ length: 20_000 }, (_, at) =>
  rule({ id: `f${at}`, to: [`198.18.${at >> 8}.${at & 255}`], protocol: IPPROTO.udp, ports: [`${at + 1}`] }),
);
/** Pods of `web` may reach one port, and pods of `db` another one. `isLarge`: with 20,000 further rules. */
const pods = (isLarge = false) =>
  policy([
    ...(isLarge ? [group(['192.0.2.0/24'], further)] : []),
    group([], to(WEB_PORT), { id: 'web', selectors: [selector('web')] }),
    group([], to(DB_PORT), { id: 'db', selectors: [selector('db')] }),
  ]);
const scope = { resolved: new Set([...WEB.keys, ...DB.keys]), podNetworks: [], networks: new Map() };

/** Addresses of other pods, with which the policy has the rules of both sets for both families. */
const OTHERS = ['10.99.0.1', '10.99.0.2', 'fd77:9::1', 'fd77:9::2'].map(addressOf);

/** The members: a dual-stack pod that sends the packets, and the other pods. */
const list = (ofPod: SelectorSet | null): MemberList => ({
  added: [WEB, DB],
  addresses: [POD.ipv4, POD.ipv6, ...OTHERS],
  sets: Uint32Array.of(ofPod?.number ?? 0, ofPod?.number ?? 0, ...OTHERS.map((_, at) => 1 + (at % 2))),
  dropped: [],
});
const podIs = (set: SelectorSet | null): MembershipChange => ({
  added: [],
  addresses: [POD.ipv4, POD.ipv6],
  sets: Uint32Array.of(set?.number ?? 0, set?.number ?? 0),
  dropped: [],
});

type Family = keyof typeof POD;
const topology = topologyOfFile('v6members');
const clients = new Map<Family, Socket>();
const servers: Socket[] = [];
/** The number of datagrams that arrived, by family and port. */
const arrived = new Map<string, number>();
let datapath: LocalDatapath | undefined;

beforeAll(async () => {
  await addIpv6(topology);
  const ends = { ipv4: ADDRESSES, ipv6: IPV6 };
  for (const family of ['ipv4', 'ipv6'] as const) {
    const { client, server } = ends[family];
    clients.set(family, await boundSocket(topology.client.name, client, CLIENT_PORT));
    for (const port of [WEB_PORT, DB_PORT]) {
      const socket = await boundSocket(topology.server.name, server, port);
      socket.on('message', () => arrived.set(`${family} ${port}`, (arrived.get(`${family} ${port}`) ?? 0) + 1));
      servers.push(socket);
    }
  }
});
afterAll(() => {
  for (const socket of [...clients.values(), ...servers]) socket.close();
});
beforeEach(() => {
  open().attach();
  datapath?.memberChanges.replace(list(WEB));
  activate(1);
});
afterEach(() => {
  datapath?.close();
  datapath = undefined;
  detach(topology.pinPath);
});

function open(options: Partial<DatapathOptions> = {}): LocalDatapath {
  datapath?.close();
  datapath = new LocalDatapath(
    datapathOptions(topology.pinPath, { ipv6: 'enforce', programCapacity: 65_536, ...options }),
  );
  datapath.open();
  return datapath;
}
function activate(generation: number, isLarge = false, ipv6 = true): void {
  const given = { ipv6, membership: { scope, list: list(WEB) } };
  datapath?.stage(compile(pods(isLarge), given), generation);
  datapath?.prove(samplesOf(pods(isLarge), given));
  datapath?.flip();
}

function send(family: Family, port: number): void {
  clients.get(family)?.send('x', port, family === 'ipv4' ? ADDRESSES.server : IPV6.server);
}
/** Returns, for each family and port, whether a datagram of the pod arrives. */
async function passing(): Promise<string[]> {
  const tried = (['ipv4', 'ipv6'] as const).flatMap((family) =>
    [WEB_PORT, DB_PORT].map((port) => ({ family, port, key: `${family} ${port}`, before: 0 })),
  );
  for (const each of tried) {
    each.before = arrived.get(each.key) ?? 0;
    send(each.family, each.port);
  }
  const isIn = ({ key, before }: (typeof tried)[number]): boolean => (arrived.get(key) ?? 0) > before;
  await pause(150);
  return tried.filter(isIn).map(({ key }) => key);
}
const WEB_PASSES = [`ipv4 ${WEB_PORT}`, `ipv6 ${WEB_PORT}`];
const DB_PASSES = [`ipv4 ${DB_PORT}`, `ipv6 ${DB_PORT}`];

test('the packets of a dual-stack pod pass by both IP families while the pod exists, and by the group of its labels', async () => {
  expect(await passing()).toEqual(WEB_PASSES);
  expect(datapath?.memberChanges.change(podIs(DB))).toMatchObject({ members: 6, refused: 0, uncompiled: 0 });
  expect(await passing()).toEqual(DB_PASSES);
  expect(datapath?.memberChanges.change(podIs(null))).toMatchObject({ members: 4 });
  expect(await passing()).toEqual([]);
  datapath?.memberChanges.change(podIs(WEB));
  expect(await passing()).toEqual(WEB_PASSES);
});

test('a removed dual-stack pod loses its rights on its open flows of both IP families', async () => {
  expect(await passing()).toEqual(WEB_PASSES);
  expect(datapath?.memberChanges.change(podIs(null))).toMatchObject({ flows: 2 });
  const before = new Map(arrived);
  const until = performance.now() + 300;
  for (; performance.now() < until; await pause(2)) for (const family of clients.keys()) send(family, WEB_PORT);
  expect(arrived).toEqual(before);
});

test('members of both IP families stay in force while no process runs, after a restart, and when a larger policy requires larger BPF maps', async () => {
  datapath?.close();
  expect(await passing()).toEqual(WEB_PASSES);
  open().attach();
  expect(await passing()).toEqual(WEB_PASSES);
  activate(2, true);
  // The new process has named no set of selectors, so its program has no rules for them.
  expect(await passing()).toEqual([]);
  expect(datapath?.memberChanges.replace(list(WEB))).toMatchObject({ members: 6, refused: 0, uncompiled: 0 });
  expect(await passing()).toEqual(WEB_PASSES);
  datapath?.memberChanges.change(podIs(DB));
  expect(await passing()).toEqual(DB_PASSES);
});

test('a takeover with another size of the flow tables keeps the members of both IP families', async () => {
  open({ flowCapacity: 2_048 }).attach();
  expect(datapath?.memberChanges.change(podIs(null))).toMatchObject({ members: 4 });
  datapath?.memberChanges.replace(list(WEB));
  activate(2);
  expect(await passing()).toEqual(WEB_PASSES);
});

test('after a restart without IPv6 policies and another one with them, no IPv6 member of the first process is left', async () => {
  open({ ipv6: 'drop' }).attach();
  activate(2, false, false);
  expect(datapath?.memberChanges.replace(list(WEB))).toMatchObject({ members: 3 });
  open().attach();
  datapath?.memberChanges.replace({ ...list(WEB), addresses: [POD.ipv4], sets: Uint32Array.of(WEB.number) });
  activate(3);
  expect(await passing()).toEqual([`ipv4 ${WEB_PORT}`]);
});
