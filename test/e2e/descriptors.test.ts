import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const must = promisify(execFile);
const soon = { timeout: 15_000, interval: 50 };

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('descriptors', [80], { sections: { service_plane: {} } });
  await rig.put(
    policyOf([
      { match: { proto: 'tcp', dst_ports: [80] } },
      { match: { proto: 'tcp', dst_ports: [443], tls: { sni: ['named.test'] } } },
    ]),
  );
  await rig.node.ready();
});
afterAll(() => rig?.remove());

/**
 * Sets the soft limit of the node for open file descriptors. The hard limit stays unchanged, so that a later
 * call can raise the soft limit.
 */
async function limit(soft: number | 'unlimited'): Promise<void> {
  const { uid, gid } = statSync(`/proc/${rig.node.pid}`);
  const asUser = ['--reuid', String(uid), '--regid', String(gid), '--clear-groups'];
  await must('setpriv', [...asUser, 'prlimit', `--pid=${rig.node.pid}`, `--nofile=${soft}:`]);
}

/** Returns the descriptors of the established TCP connections of a process. */
function connectionDescriptors(pid: number): readonly number[] {
  const established = readFileSync(`/proc/${pid}/net/tcp`, 'utf8').matchAll(/^\s*\d+: \S+ \S+ 01 (?:\S+ +){5}(\d+)/gm);
  const sockets = new Set(Array.from(established, ([, inode]) => `socket:[${inode}]`));
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return sockets.has(readlinkSync(`/proc/${pid}/fd/${fd}`)) ? [Number(fd)] : [];
    } catch {
      // The process has closed the descriptor since `readdirSync` listed it.
      return [];
    }
  });
}

async function lines(word: string): Promise<number> {
  return (await rig.node.log()).split('\n').filter((line) => line.includes(word)).length;
}

/**
 * A python3 program that opens connections, sends nothing, and keeps the connections open until its standard
 * input ends.
 */
const SILENT = `
import socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
kept = [socket.create_connection((host, port), timeout=10) for _ in range(count)]
print('open', flush=True)
sys.stdin.read()`;

describe('connections of other processes', () => {
  test.each([
    ['to inspected ports', () => rig.topology.client, [ADDRESSES.server, '443']],
    ['to the API', () => rig.topology.node, ['127.0.0.1', '8080']],
  ])(
    'many connections of other processes (%s) leave a quarter of the descriptor limit of the node free',
    async (_, from, at) => {
      const { node } = rig;
      const most = 600;
      await limit(most);
      const child = from().start('/usr/bin/python3', ['-c', SILENT, ...at, String(most)]);
      try {
        expect(await firstLine(child)).toBe('open');
        // The kernel completes the TCP handshakes before the node accepts the connections. So the test waits
        // until the node has opened descriptors for the connections.
        const accepted = (): readonly number[] => connectionDescriptors(node.pid);
        await expect.poll(() => accepted().length, { interval: 10 }).toBeGreaterThan(most / 3);
        // The node may use the other descriptors for files of its own, such as the pipes of a started `nft`.
        await expect.poll(() => accepted().filter((fd) => fd >= (most * 3) / 4), soon).toEqual([]);
        if (at[1] === '443') await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [80, 443] } }]));
        expect(await lines('"type":"watch_fault_changed","fault":"')).toBe(0);
        expect(await lines('worker_died')).toBe(0);
      } finally {
        child.kill('SIGKILL');
        await limit(20_000);
      }
    },
  );
});

describe('a node without free file descriptors', () => {
  test('a node without free file descriptors keeps its datapath thread, reports failed checks of the datapath, and checks again when descriptors are free', async () => {
    const { node, topology } = rig;
    // With this limit the node can open no new file descriptor: each attempt fails with EMFILE.
    await limit(3);
    try {
      await expect.poll(() => lines('"type":"watch_fault_changed","fault":"'), soon).toBe(1);
      expect(await node.log()).toMatch(/"fault":"[^"]*EMFILE/);
      // The BPF program enforces the policy without the datapath thread. Kernel notifications about nftables
      // and interfaces must not end the thread, although it can open no descriptor.
      expect(await rig.tcp(80)).toBe('open');
      await topology.node.must('nft', 'delete table inet weir');
      await topology.node.must('ip', 'link', 'add', 'later0', 'type', 'veth', 'peer', 'name', 'later1');
      await topology.node.must('ip', 'link', 'del', 'later0');
    } finally {
      await limit(20_000);
    }
    await expect.poll(() => lines('"type":"watch_fault_changed","fault":null'), soon).toBe(1);
    await expect.poll(() => lines('"type":"guard_lost"'), soon).toBe(1);
    await node.ready();
    await expect
      .poll(async () => (await topology.node.run('nft', 'list', 'chain', 'inet', 'weir', 'guard')).code, soon)
      .toBe(0);
    expect(await lines('worker_died')).toBe(0);
  });
});
