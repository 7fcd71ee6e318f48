import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig, policyOf } from '#test/e2e/rig.js';
import type { Summary } from '#test/kernel/prober.js';

/**
 * This trial ends a node of an earlier build and starts this build in its place, while traffic passes.
 * `WEIR_EARLIER` names a folder with an earlier build. Without this variable, the trial builds the last
 * commit whose datapath had the map layout version 5.
 */
const EARLIER = process.env.WEIR_EARLIER;
const LAST_OF_LAYOUT_5 = '0b8e84c51a6e';
const SET_UP_MS = 600_000;
const repository = fileURLToPath(new URL('../..', import.meta.url));
const proberFile = join(repository, 'dist/test/kernel/prober.js');
const [ALLOWED, DENIED] = [8_000, 8_001];

let folder: string | undefined;
let earlier: string;
let rig: NodeRig;

beforeAll(() => {
  if (EARLIER === undefined) {
    folder = mkdtempSync(join(tmpdir(), 'weir-earlier-'));
    execFileSync('git', ['clone', '-q', '--shared', repository, folder]);
    execFileSync('git', ['checkout', '-q', LAST_OF_LAYOUT_5], { cwd: folder });
    execFileSync('bash', ['scripts/setup.sh'], { cwd: folder, stdio: 'ignore' });
  }
  earlier = join(EARLIER ?? (folder as string), 'bin/weir.js');
}, SET_UP_MS);
afterAll(() => {
  if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
});

const ALLOWS = [{ match: { proto: 'udp', dst_ports: [ALLOWED] } }, { match: { proto: 'tcp', dst_ports: [ALLOWED] } }];

beforeEach(async () => {
  rig = await createRig('upgrade', [ALLOWED, DENIED], { command: earlier });
  await rig.put(policyOf(ALLOWS));
  await rig.node.ready();
});
afterEach(() => rig?.remove());

/** Runs `upgrade` while the client sends traffic. Returns the counts of sent, answered and lost packets. */
async function under(upgrade: () => Promise<void>): Promise<Summary> {
  const words = [proberFile, ADDRESSES.server, `${ALLOWED}`, `${DENIED}`];
  const prober = rig.topology.client.start(process.execPath, words);
  try {
    await firstLine(prober);
    await pause(1_000);
    await upgrade();
    await pause(2_000);
    const line = firstLine(prober);
    prober.stdin?.end();
    const summary = JSON.parse(await line) as Summary;
    console.log(JSON.stringify(summary));
    return summary;
  } finally {
    prober.kill('SIGKILL');
  }
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function expectNoHarm({ udp, freshUdp, tcp, freshTcp, denied }: Summary): void {
  expect(udp.sent).toBeGreaterThan(500);
  expect(freshUdp.opened).toBeGreaterThan(100);
  expect(freshTcp.opened).toBeGreaterThan(50);
  expect(denied.sent).toBeGreaterThan(100);
  expect({
    lost: [udp.lost, freshUdp.failed, freshTcp.failed],
    closed: tcp.closed,
    leaked: denied.answered,
  }).toEqual({ lost: [0, 0, 0], closed: false, leaked: 0 });
}

test.each(['SIGTERM', 'SIGKILL'] as const)(
  'this build replaces an earlier build that the signal %s ended, without loss of packets or connections',
  async (signal) => {
    const before = await rig.node.request('GET', '/api/v1/policy');
    const summary = await under(async () => {
      await rig.node.end(signal);
      await pause(500);
      await rig.node.restart({ command: undefined });
      await rig.node.ready();
    });
    expectNoHarm(summary);
    const after = await rig.node.request('GET', '/api/v1/policy');
    expect(after.body).toEqual(before.body);
    // A policy write and another restart check that this build can read the state that it wrote.
    await rig.put(policyOf(ALLOWS, {}, { default_policy: 'allow' }));
    expect(await rig.udp(DENIED)).toBe('pong 1');
    await rig.node.end('SIGTERM');
    await rig.node.restart();
    await rig.node.ready();
    expect(await rig.udp(DENIED)).toBe('pong 1');
  },
);

test('without CAP_SYS_ADMIN, this build refuses to take over the BPF maps of the earlier datapath, which stays in force', async () => {
  const summary = await under(async () => {
    await rig.node.end('SIGTERM');
    await rig.node.restart({ command: undefined, without: ['SYS_ADMIN'] });
    await expect(rig.node.ready({ timeoutMs: 8_000 })).rejects.toThrow('CAP_SYS_ADMIN');
    await rig.node.restart({ without: [] });
    await rig.node.ready();
  });
  expectNoHarm(summary);
});
