import type { Socket } from 'node:dgram';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ADDRESSES, createTopology, type Topology } from '#cli/tour/topology.js';
import type { Datapath } from '#contracts/datapath/datapath.js';
import type { MemberList, MembershipChange, SelectorSet } from '#contracts/kubernetes/membership.js';
import type { Program } from '#contracts/policy/program.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { detach } from '#dataplane/thread/detach.js';
import { compile } from '#policy/compile/compile.js';
import { samplesOf } from '#policy/proof/proof-sample.js';
import { address, group, policy, rule, selector } from '#test/policy/sample.js';
import { Random, seedOf } from '#test/seed.js';
import { boundSocket } from './bound-socket.js';
import { datapathOptions } from './datapath-options.js';
import { LongestGap } from './longest-gap.js';
import { enterNamespace } from './namespace.js';

const POD = address(ADDRESSES.client);
const WEB: SelectorSet = { number: 1, keys: [selector('web').key] };
const DB: SelectorSet = { number: 2, keys: [selector('db').key] };
const BOTH: SelectorSet = { number: 3, keys: [...WEB.keys, ...DB.keys] };
const WEB_PORT = 8_000;
const DB_PORT = 8_001;
const CLIENT_PORT = 40_000;

const pods = policy([
  group([], [rule({ id: 'web', ports: [`${WEB_PORT}`] })], { id: 'web', selectors: [selector('web')] }),
  group([], [rule({ id: 'db', ports: [`${DB_PORT}`] })], { id: 'db', selectors: [selector('db')] }),
]);
const scope = {
  resolved: new Set(BOTH.keys),
  podNetworks: [{ address: address('10.77.1.0'), length: 24 }],
  networks: new Map(),
};

/** Returns a list of two members: the pod that sends the packets, and an address that no packet has. */
const list = (first: SelectorSet, second: SelectorSet): MemberList => ({
  added: [first, second],
  addresses: [POD, POD + 1],
  sets: Uint32Array.of(first.number, second.number),
  dropped: [],
});
const podIs = (set: SelectorSet | null, added: readonly SelectorSet[] = []): MembershipChange => ({
  added,
  addresses: [POD],
  sets: Uint32Array.of(set?.number ?? 0),
  dropped: [],
});

let topology: Topology;
let leave: () => void;
let datapath: Datapath;
let client: Socket;
const servers: Socket[] = [];
/** The times in ms at which the datagrams that arrived were sent, by the port of the server. */
const arrived = new Map<number, number[]>();
let replies = 0;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function send(port: number): void {
  client.send(String(performance.now()), port, ADDRESSES.server);
}

/** Sends a datagram each millisecond until `end`. */
function sending(): { readonly gap: LongestGap; readonly end: () => void } {
  const gap = new LongestGap();
  const timer = setInterval(() => {
    gap.tick();
    send(WEB_PORT);
  }, 1);
  return { gap, end: () => clearInterval(timer) };
}

/** Sends a datagram by the five-tuple of the client and this port, and returns whether it arrives. */
async function passes(port: number): Promise<boolean> {
  const before = arrived.get(port)?.length ?? 0;
  send(port);
  const until = performance.now() + 150;
  while (performance.now() < until && (arrived.get(port)?.length ?? 0) === before) await pause(2);
  return (arrived.get(port)?.length ?? 0) > before;
}

async function activate(members: MemberList, generation: number): Promise<void> {
  const membership = { scope, list: members };
  await datapath.stage(compile(pods, { membership }), generation);
  await datapath.prove(samplesOf(pods, { membership }));
  await datapath.flip();
}

/** Returns a program with 100,000 more rules, for which the datapath must enlarge the maps of the program. */
function largeProgram(): Program {
  const random = new Random(seedOf(20_261_130));
  const many = Array.from({ length: 100_000 }, (_, at) =>
    rule({
      id: `r${at}`,
      protocol: 17,
      to: [`172.${16 + (at >> 16)}.${(at >> 8) & 255}.${at & 255}/32`],
      ports: [String(1 + random.below(60_000))],
    }),
  );
  const large = policy([
    ...Array.from({ length: 100 }, (_, at) =>
      group([`10.9.${at}.0/24`], many.slice(at * 1_000, (at + 1) * 1_000), { id: `g${at}` }),
    ),
    ...pods.groups,
  ]);
  return compile(large, { membership: { scope, list: list(WEB, DB) } });
}

async function start(): Promise<void> {
  datapath = openDatapath(datapathOptions(topology.pinPath, { programCapacity: 1 << 17 }));
  await datapath.open();
}

beforeEach(async () => {
  topology = await createTopology('members');
  client = await boundSocket(topology.client.name, ADDRESSES.client, CLIENT_PORT);
  client.on('message', () => replies++);
  for (const port of [WEB_PORT, DB_PORT]) {
    const server = await boundSocket(topology.server.name, ADDRESSES.server, port);
    arrived.set(port, []);
    server.on('message', (text) => arrived.get(port)?.push(Number(text.toString())));
    servers.push(server);
  }
  leave = enterNamespace(topology.node.name);
  await start();
  await datapath.attach();
  await datapath.replaceMembers(list(WEB, DB));
  await activate(list(WEB, DB), 1);
});

afterEach(async () => {
  await datapath.close();
  detach(topology.pinPath);
  leave();
  for (const socket of [client, ...servers.splice(0)]) socket.close();
  await topology.remove();
});

test("a new pod with the address and five-tuple of a former pod gets none of the former pod's rights later than 60 ms after the change", async () => {
  const last: number[] = [];
  for (let turn = 0; turn < 10; turn++) {
    expect(await passes(WEB_PORT)).toBe(true);
    const { gap, end } = sending();
    await pause(20);
    const begun = performance.now();
    // The first pod is removed, so that the address has no owner. Then the next pod gets the address.
    await datapath.changeMembers(podIs(null));
    const changed = performance.now() - begun;
    expect(await datapath.changeMembers(podIs(DB))).toMatchObject({ members: 2, uncompiled: 0 });
    await pause(80);
    end();
    await pause(20);
    last.push(Math.max(0, ...(arrived.get(WEB_PORT) ?? []).map((sent) => sent - begun)));
    expect(last.at(-1)).toBeLessThan(changed);
    expect(last.at(-1)).toBeLessThan(60 + gap.ms);
    const before = replies;
    servers[0]?.send('late', CLIENT_PORT, ADDRESSES.client);
    expect([await passes(WEB_PORT), await passes(DB_PORT)]).toEqual([false, true]);
    expect(replies).toBe(before);
    await datapath.changeMembers(podIs(WEB));
  }
  console.log(`removal to the last packet by old rights: ${last.map((ms) => ms.toFixed(1)).join(', ')} ms`);
});

test('a pod whose set of source groups is not in the policy matches no allow rule with selectors until a policy with that set is in force', async () => {
  expect(await passes(WEB_PORT)).toBe(true);
  expect(await datapath.changeMembers(podIs(BOTH, [BOTH]))).toMatchObject({ uncompiled: 1, flows: 1 });
  expect([await passes(WEB_PORT), await passes(DB_PORT)]).toEqual([false, false]);
  await activate(list(BOTH, DB), 2);
  expect([await passes(WEB_PORT), await passes(DB_PORT)]).toEqual([true, true]);
  expect(await datapath.changeMembers(podIs(BOTH))).toMatchObject({ uncompiled: 0, flows: 0 });
});

test('the Kubernetes members in the kernel stay after the end of the process, and the first list of the next process replaces them', async () => {
  await datapath.close();
  expect([await passes(WEB_PORT), await passes(DB_PORT)]).toEqual([true, false]);
  await start();
  expect([await passes(WEB_PORT), await passes(DB_PORT)]).toEqual([true, false]);
  const other = { number: 7, keys: DB.keys };
  const added = { ...podIs(other), added: [other] };
  expect(await datapath.replaceMembers(added)).toMatchObject({ members: 1, flows: 1 });
  expect([await passes(WEB_PORT), await passes(DB_PORT)]).toEqual([false, true]);
  await activate(added, 2);
  expect([await passes(WEB_PORT), await passes(DB_PORT)]).toEqual([false, true]);
  const none = { added: [], addresses: [], sets: new Uint32Array(0), dropped: [] };
  expect(await datapath.changeMembers(none)).toMatchObject({ members: 1 });
});

test('a pod loses its rights if its removal is the first member change after a restart, and a policy that is prepared (staged) has larger maps', async () => {
  expect(await passes(WEB_PORT)).toBe(true);
  await datapath.close();
  await start();
  await datapath.stage(largeProgram(), 2);
  expect(await datapath.changeMembers(podIs(null))).toMatchObject({ flows: 1 });
  expect(await passes(WEB_PORT)).toBe(false);
});

test('a pod loses its rights within 60 ms while a policy with 100,000 rules is prepared (staged)', async () => {
  const program = largeProgram();
  await datapath.stage(program, 2);
  const last: number[] = [];
  for (let turn = 0; turn < 6; turn++) {
    expect(await passes(WEB_PORT)).toBe(true);
    const { gap, end } = sending();
    await pause(20);
    const ended: string[] = [];
    const staged = datapath.stage(program, 2).then(() => ended.push('stage'));
    const begun = performance.now();
    await datapath.changeMembers(podIs(null)).then(() => ended.push('change'));
    await staged;
    expect(ended).toEqual(['change', 'stage']);
    await pause(80);
    end();
    await pause(20);
    last.push(Math.max(0, ...(arrived.get(WEB_PORT) ?? []).map((sent) => sent - begun)));
    expect(last.at(-1)).toBeLessThan(60 + gap.ms);
    await datapath.changeMembers(podIs(WEB));
  }
  console.log(`removal to the last packet during staging: ${last.map((ms) => ms.toFixed(1)).join(', ')} ms`);
});
