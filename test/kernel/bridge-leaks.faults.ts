import { type ChildProcess, execFileSync } from 'node:child_process';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { NETLINK_NETFILTER, NetlinkSocket } from '#libc/netlink.js';
import { compile } from '#policy/compile/compile.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { type BridgedTopology, createBridge } from './bridged.js';
import { datapathOptions } from './datapath-options.js';
import { enterNamespace } from './namespace.js';

const PORTS = ['lan0', 'wan0', 'lan1'];
const SERVER = '10.77.2.2';
const IPCTNL_MSG_CT_DELETE = 2;
const NLM_F_REQUEST = 1;

let bridged: BridgedTopology;
let leave: () => void;
let datapath: LocalDatapath;
let sender: ChildProcess;
let generation = 0;

const sh = (command: string): string => execFileSync('sh', ['-ec', command], { encoding: 'utf8' });
const inServer = (command: string): string => sh(`ip netns exec ${bridged.topology.server.name} ${command}`);
const inClient = (command: string): string => sh(`ip netns exec ${bridged.topology.client.name} ${command}`);

/** Sends datagrams without a pause: to port 9, which the policy allows, and to port 10, which it denies. */
const SENDER = `const s = require('node:dgram').createSocket('udp4');
  const send = () => s.send('x', 9, '${SERVER}', () => s.send('x', 10, '${SERVER}', () => setImmediate(send)));
  s.bind(4000, () => { console.log('ready'); send(); });`;
const COUNTERS = (hook: string): string => `table inet seen {
  counter allowed { }
  counter denied { }
  chain packets { type filter hook ${hook} priority 0; udp dport 9 counter name allowed; udp dport 10 counter name denied; }
}`;

beforeAll(async () => {
  bridged = await createBridge('bridge-leaks');
  // The server has a socket for each port, so it sends no ICMP errors.
  await firstLine(
    bridged.topology.server.start(process.execPath, [
      '-e',
      `for (const port of [9, 10]) require('node:dgram').createSocket('udp4').bind(port, () => port === 10 && console.log('ready'))`,
    ]),
  );
  inServer(`nft '${COUNTERS('input')}'`);
  inClient(`nft '${COUNTERS('output')}'`);
  leave = enterNamespace(bridged.topology.node.name);
});
afterAll(async () => {
  leave();
  await bridged.remove();
});
beforeEach(async () => {
  police();
  enforce();
  sender = bridged.topology.client.start(process.execPath, ['-e', SENDER]);
  await firstLine(sender);
});
afterEach(() => {
  sender.kill('SIGKILL');
  datapath.close();
  detach(bridged.topology.pinPath);
  sh('nft flush ruleset; sysctl -qw net.bridge.bridge-nf-call-iptables=0');
});

function police(options: Partial<DatapathOptions> = {}): void {
  const configured = { interfaces: PORTS, pickupMs: 60_000, ...options };
  datapath = new LocalDatapath(datapathOptions(bridged.topology.pinPath, configured));
  datapath.open();
  datapath.attach();
}
/** Puts a policy in force that allows UDP to port 9, and to another port that depends on the generation. */
function enforce(): void {
  generation++;
  const ports = ['9', String(20_000 + generation)];
  datapath.stage(compile(policy([group(['0.0.0.0/0'], [rule({ protocol: IPPROTO.udp, ports })])])), generation);
  datapath.flip();
}

const count = (list: (command: string) => string, name: string): number =>
  Number(/packets (\d+)/.exec(list(`nft list counter inet seen ${name}`))?.[1]);
const counts = () => ({
  sent: count(inClient, 'denied'),
  arrived: count(inServer, 'allowed'),
  leaked: count(inServer, 'denied'),
});

/** Repeats a step under load. Expects that allowed packets cross the bridge, and no denied one. */
async function expectClosed(step: (round: number) => void, rounds = 10): Promise<void> {
  const before = counts();
  for (let round = 0; round < rounds; round++) {
    step(round);
    const { sent } = counts();
    await expect.poll(() => counts().sent, { interval: 5 }).toBeGreaterThan(sent + 20);
  }
  await expect.poll(() => counts().arrived).toBeGreaterThan(before.arrived);
  const after = counts();
  expect(after.leaked - before.leaked).toBe(0);
  expect(after.sent - before.sent).toBeGreaterThan(20 * rounds);
  const { arrived } = after;
  await expect.poll(() => counts().arrived).toBeGreaterThan(arrived + 20);
}

test('no denied packet crosses the bridge while policies are replaced', () => expectClosed(enforce));

test('no denied packet crosses the bridge while nftables is flushed and the guard (nftables rules of Weir) is created again', () =>
  expectClosed((round) => {
    sh('nft flush ruleset');
    // In every other round, the guard is not created again, and only the BPF programs enforce.
    if (round % 2 === 1) datapath.attach();
  }));

test('no denied packet crosses a bridge with br_netfilter while conntrack is flushed', () => {
  sh(`sysctl -qw net.bridge.bridge-nf-call-iptables=1
    nft 'add table ip mine; add chain ip mine forwarded { type filter hook forward priority 0; }; add rule ip mine forwarded ct state new,established accept'`);
  return expectClosed(() => {
    const socket = new NetlinkSocket(NETLINK_NETFILTER, 0);
    socket.send((1 << 8) | IPCTNL_MSG_CT_DELETE, NLM_F_REQUEST, Buffer.alloc(4));
    socket.close();
  });
});

test('no denied packet crosses the bridge while the process ends and another process takes over the BPF maps', () =>
  expectClosed(() => {
    datapath.close();
    police();
    enforce();
  }, 4));

test('no denied packet crosses the bridge while a datapath with larger BPF maps takes over from the earlier datapath', () =>
  expectClosed((round) => {
    datapath.close();
    police({ flowCapacity: 1_024 << (round % 4) });
    enforce();
  }, 4));

test('no denied packet crosses the bridge while a port leaves the bridge and returns', () =>
  expectClosed(() => {
    sh('ip link set wan0 nomaster; ip link set wan0 master br0');
    datapath.look();
  }));

test('no packet crosses the bridge between the load of the guard (nftables rules of Weir) and the first policy', async () => {
  sender.kill('SIGKILL');
  const guard = sh('nft list table inet weir; nft list table bridge weir');
  datapath.close();
  detach(bridged.topology.pinPath);
  // At boot, the guard is loaded before a port is up, and Weir attaches its programs later.
  sh(`nft -f - <<'END'\n${guard}\nEND`);
  sender = bridged.topology.client.start(process.execPath, ['-e', SENDER]);
  await firstLine(sender);
  const before = counts();
  police();
  const { sent } = counts();
  await expect.poll(() => counts().sent).toBeGreaterThan(sent + 200);
  expect(counts()).toMatchObject({ arrived: before.arrived, leaked: before.leaked });
  enforce();
  await expect.poll(() => counts().arrived).toBeGreaterThan(before.arrived + 20);
  expect(counts().leaked).toBe(before.leaked);
});
