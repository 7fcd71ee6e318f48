import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createTopology, type Topology } from '#cli/topology.js';
import { type KernelNotifications, NotificationSockets } from '#dataplane/watch/kernel-notifications.js';
import { Poll } from '#dataplane/watch/poll.js';
import { enterNamespace } from './namespace.js';

let topology: Topology;
let leave: () => void;
beforeAll(async () => {
  topology = await createTopology('news');
  leave = enterNamespace(topology.node.name);
  await quiet();
}, 60_000);
afterAll(async () => {
  leave();
  await topology.remove();
});

/** Waits until the sockets are quiet: the kernel may report a carrier up to a second late. */
async function quiet(): Promise<void> {
  const sockets = new NotificationSockets();
  try {
    for (let since = performance.now(); performance.now() - since < QUIET_MS; ) {
      if (sockets.take().links) since = performance.now();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  } finally {
    sockets.close();
  }
}
const QUIET_MS = 1_500;

const NOTHING: KernelNotifications = { links: false, guard: false, others: false };
/** The notifications that a command causes, and whether the sockets were readable. */
function heard(command: string, input?: string): KernelNotifications & { readonly readable: boolean } {
  const sockets = new NotificationSockets();
  try {
    execFileSync('sh', ['-ec', command], { input });
    const readable = new Poll(sockets.fds).wait(0);
    const notifications = sockets.take();
    expect(sockets.take()).toEqual(NOTHING);
    return { ...notifications, readable };
  } finally {
    sockets.close();
  }
}

test.each([
  ['an interface that appears', 'ip link add v0 type veth peer name v1', { links: true, guard: false, others: true }],
  ['one that is renamed', 'ip link set v0 name v2', { links: true, guard: false, others: true }],
  ['one that vanishes', 'ip link del v2', { links: true, guard: false, others: true }],
  ['a guard that is made', 'nft add table inet weir', { links: false, guard: true, others: true }],
  ['a chain in it', 'nft add chain inet weir guard', { links: false, guard: true, others: true }],
  ['a rule in it', 'nft add rule inet weir guard accept', { links: false, guard: true, others: true }],
  ['one that is deleted', 'nft delete table inet weir', { links: false, guard: true, others: true }],
  [
    'everything that is flushed',
    'nft add table inet weir; nft flush ruleset',
    { links: false, guard: true, others: true },
  ],
  [
    'a filter',
    'tc qdisc add dev lan0 clsact; tc qdisc del dev lan0 clsact',
    { links: false, guard: false, others: true },
  ],
  ['an ip rule', 'ip rule add fwmark 1 table 9; ip rule del fwmark 1', { links: false, guard: false, others: true }],
] as const)('%s causes a notification', (_, command, notifications) => {
  expect(heard(command)).toEqual({ ...notifications, readable: true });
});

test('a third-party table does not count as the guard, even with the guard’s name in another family', () => {
  const command = 'nft add table inet other; nft add chain inet other guard; nft add table ip weir; nft flush ruleset';
  expect(heard(command)).toEqual({ ...NOTHING, others: true, readable: true });
});

test('without a change there is no notification', () => {
  expect(heard('true')).toEqual({ ...NOTHING, readable: false });
});

test('lost messages count as a change of everything', () => {
  const flood = Array.from({ length: 2_000 }, (_, index) => `link set lan0 alias n${index}`).join('\n');
  expect(heard('ip -batch -', flood)).toEqual({ links: true, guard: false, others: true, readable: true });
  const tables = Array.from({ length: 3_000 }, (_, index) => `add table inet other${index}`).join('\n');
  expect(heard('nft -f -', tables)).toEqual({ links: false, guard: true, others: true, readable: true });
});
