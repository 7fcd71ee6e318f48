import { execFileSync } from 'node:child_process';
import { beforeAll, expect, test } from 'vitest';
import { type KernelNotifications, NotificationSockets } from '#dataplane/watch/kernel-notifications.js';
import { Poll } from '#dataplane/watch/poll.js';
import { topologyOfFile } from './topology-of-file.js';

topologyOfFile('news');
beforeAll(async () => {
  await quiet();
});

/**
 * Waits until no notification has arrived for 1.5 seconds, because the kernel can report the carrier of a new
 * link up to one second late.
 */
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

const NOTHING: KernelNotifications = { links: false, guard: false, thirdPartyHooks: false };
/**
 * Runs a shell command. Returns the kernel notifications that the command causes, and whether the
 * notification sockets became readable.
 */
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
  ['a new interface', 'ip link add v0 type veth peer name v1', { links: true, guard: false, thirdPartyHooks: true }],
  ['a renamed interface', 'ip link set v0 name v2', { links: true, guard: false, thirdPartyHooks: true }],
  ['a deleted interface', 'ip link del v2', { links: true, guard: false, thirdPartyHooks: true }],
  ['a new guard', 'nft add table inet weir', { links: false, guard: true, thirdPartyHooks: true }],
  ['a new chain of the guard', 'nft add chain inet weir guard', { links: false, guard: true, thirdPartyHooks: true }],
  [
    'a new rule of the guard',
    'nft add rule inet weir guard accept',
    { links: false, guard: true, thirdPartyHooks: true },
  ],
  ['a deleted guard', 'nft delete table inet weir', { links: false, guard: true, thirdPartyHooks: true }],
  [
    'a ruleset that is flushed',
    'nft add table inet weir; nft flush ruleset',
    { links: false, guard: true, thirdPartyHooks: true },
  ],
  [
    'a new and deleted clsact qdisc',
    'tc qdisc add dev lan0 clsact; tc qdisc del dev lan0 clsact',
    { links: false, guard: false, thirdPartyHooks: true },
  ],
  [
    'an ip rule',
    'ip rule add fwmark 1 table 9; ip rule del fwmark 1',
    { links: false, guard: false, thirdPartyHooks: true },
  ],
] as const)(
  'the notifications of the kernel about a change (%s) tell the node what to check: interfaces, the guard (nftables table weir) or third-party hooks',
  (_, command, notifications) => {
    expect(heard(command)).toEqual({ ...notifications, readable: true });
  },
);

test('a change of a third-party nftables table does not count as a change of the nftables table of Weir, even if table or chain has the same name', () => {
  const command = 'nft add table inet other; nft add chain inet other guard; nft add table ip weir; nft flush ruleset';
  expect(heard(command)).toEqual({ ...NOTHING, thirdPartyHooks: true, readable: true });
});

test('the sockets for kernel notifications receive nothing while nothing changes', () => {
  expect(heard('true')).toEqual({ ...NOTHING, readable: false });
});

test('lost netlink messages count as a change of everything that the socket reports', () => {
  const flood = Array.from({ length: 2_000 }, (_, index) => `link set lan0 alias n${index}`).join('\n');
  expect(heard('ip -batch -', flood)).toEqual({ links: true, guard: false, thirdPartyHooks: true, readable: true });
  const tables = Array.from({ length: 3_000 }, (_, index) => `add table inet other${index}`).join('\n');
  expect(heard('nft -f -', tables)).toEqual({ links: false, guard: true, thirdPartyHooks: true, readable: true });
});
