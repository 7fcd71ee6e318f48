import { afterAll, beforeAll, expect, test } from 'vitest';
import { program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { Random, seedOf } from '#test/seed.js';
import { createRig, type NodeRig } from './rig.js';

/**
 * Number of times that the test kills the node. `WEIR_KILLS` replaces the default of 12; 50 kills take two
 * and a half minutes.
 */
const ROUNDS = Number(process.env.WEIR_KILLS ?? 12);
let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('crash', [80, 81, 82]);
});
afterAll(() => rig?.remove());

/**
 * Returns policy number `g`. Every policy allows UDP port 80. A policy with an even number also allows UDP
 * port 81, a policy with an odd number allows port 82. The 2,000 filler rules make a policy write slow, so
 * that a kill can hit the middle of the write.
 */
function policy(g: number): unknown {
  const filler = Array.from({ length: 2_000 }, (_, index) => ({
    id: `f${index}`,
    action: 'deny',
    match: { dst_ips: [`198.51.${index >> 8}.${index & 255}`], proto: 'tcp', dst_ports: [1 + (g % 1000)] },
  }));
  return {
    default_policy: 'deny',
    source_groups: [
      {
        id: `g${g}`,
        mode: 'enforce',
        sources: { ips: [ADDRESSES.client] },
        rules: [
          { id: 'both', action: 'allow', match: { proto: 'udp', dst_ports: [80] } },
          { id: 'one', action: 'allow', match: { proto: 'udp', dst_ports: [g % 2 === 0 ? 81 : 82] } },
          ...filler,
        ],
      },
    ],
  };
}

test(`after kill -9 at a random moment of a policy write, ${ROUNDS} times, the kernel enforces the acknowledged or the pending policy`, async () => {
  const random = new Random(seedOf(2));
  console.log(`seed ${random.seed} (WEIR_SEED)`);
  // Every policy allows UDP port 80, so no datagram of this client may be lost while the node is killed.
  await rig.put(policy(0));
  const steady = rig.topology.client.start(process.execPath, [
    program('tour-traffic'),
    ...['connect-udp', ADDRESSES.server, '80', '--every', '5', '--timeout', '3000'],
  ]);
  let silent = 0;
  let pongs = 0;
  steady.stdout?.setEncoding('utf8').on('data', (text: string) => {
    for (const line of text.split('\n')) {
      if (line.startsWith('silent')) silent++;
      else if (line.startsWith('pong')) pongs++;
    }
  });

  // The test measures the duration of a policy write. Later, it kills the node at a random time after the
  // start of each write: at most 1.3 times this duration.
  const started = performance.now();
  for (const round of [-2, -1]) await rig.put(policy(round + 2));
  const writeMs = (performance.now() - started) / 2;
  await rig.put(policy(0));

  let answered = 0;
  const seen = { acknowledged: 0, 'not answered, old': 0, 'not answered, new': 0 };
  for (let round = 1; round <= ROUNDS; round++) {
    const pending = round;
    let acknowledged = false;
    const write = rig.node
      .request('PUT', '/api/v1/policy', policy(pending))
      .then((reply) => {
        acknowledged = reply.status === 200;
      })
      .catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, random.between(0, Math.ceil(1.3 * writeMs))));
    await rig.node.end('SIGKILL');
    await write;
    if (acknowledged) answered = pending;

    // Returns the UDP ports that the BPF program allows, of 81 and 82. The allowed port must be the port of
    // the acknowledged or of the pending policy.
    const allowed = async (): Promise<number[]> => {
      const lines = await Promise.all([81, 82].map((port) => rig.udp(port, '--timeout', '250')));
      return [81, 82].filter((_, index) => lines[index] === 'pong 1');
    };
    const portOf = (g: number): number => (g % 2 === 0 ? 81 : 82);
    const possible = [...new Set([portOf(answered), portOf(pending)])];
    const before = await allowed();
    expect(before, `round ${round} before the restart`).toHaveLength(1);
    expect(possible).toContain(before[0]);

    await rig.node.restart();
    await rig.node.ready();
    const stored = (await rig.node.request('GET', '/api/v1/policy')).body as { source_groups: { id: string }[] };
    const id = stored.source_groups[0]?.id;
    expect([`g${answered}`, `g${pending}`], `round ${round} in the store`).toContain(id);
    const inForce = Number(id?.slice(1));
    expect(await allowed(), `round ${round} after the restart`).toEqual([portOf(inForce)]);
    seen[acknowledged ? 'acknowledged' : inForce === pending ? 'not answered, new' : 'not answered, old']++;
    answered = inForce;
  }
  steady.kill('SIGKILL');
  console.log(`kill -9 within ${Math.round(writeMs)} ms: ${JSON.stringify(seen)}; ${pongs} echoes`);
  expect(silent).toBe(0);
  expect(pongs).toBeGreaterThan(1_000);
}, 600_000);
