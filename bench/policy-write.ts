import { readFile } from 'node:fs/promises';
import { ADDRESSES } from '#cli/topology.js';
import { createRig, type Rig } from '#test/e2e/rig.js';
import { Random } from '#test/seed.js';
import type { Bench, Row } from './bench.js';

/** A policy of many groups with a hundred rules each; the client may reach TCP port `port` of the server. */
function manyRules(count: number, port: number): unknown {
  const random = new Random(count);
  const address = (): string =>
    `${random.between(11, 200)}.${random.between(0, 255)}.${random.between(0, 255)}.${random.between(0, 255)}`;
  const rule = (index: number): unknown => {
    const low = random.between(1, 60_000);
    const length = random.pick([32, 32, 32, 28, 24, 24, 16]);
    return {
      id: `r${index}`,
      action: random.pick(['allow', 'allow', 'deny']),
      match: {
        ...(length === 32 ? { dst_ips: [address()] } : { dst_cidrs: [`${network(address(), length)}/${length}`] }),
        proto: random.pick(['tcp', 'tcp', 'udp']),
        dst_ports: random.pick<readonly unknown[]>([[443], [80, 443], [`${low}-${low + random.between(0, 500)}`]]),
      },
    };
  };
  const groups = Array.from({ length: Math.ceil((count - 1) / 100) }, (_, group) => ({
    id: `g${group}`,
    mode: 'enforce',
    sources: { cidrs: [`10.${100 + (group >> 8)}.${group & 255}.0/24`] },
    rules: Array.from({ length: Math.min(100, count - 1 - group * 100) }, (_, index) => rule(index)),
  }));
  const client = {
    id: 'client',
    mode: 'enforce',
    sources: { ips: [ADDRESSES.client] },
    rules: [{ id: 'port', action: 'allow', match: { dst_ips: [ADDRESSES.server], proto: 'udp', dst_ports: [port] } }],
  };
  return { default_policy: 'deny', source_groups: [...groups, client] };
}

function network(address: string, length: number): string {
  const number = address.split('.').reduce((sum, byte) => sum * 256 + Number(byte), 0);
  const masked = Math.floor(number / 2 ** (32 - length)) * 2 ** (32 - length);
  return [24, 16, 8, 0].map((shift) => Math.floor(masked / 2 ** shift) % 256).join('.');
}

/** `VmHWM`: the most memory the process ever had resident, heaps of all its threads included. */
async function peakMiB(rig: Rig): Promise<number> {
  const { stdout } = await rig.topology.node.run('pgrep', '-f', rig.node.folder);
  const peaks = await Promise.all(
    stdout
      .split('\n')
      .filter((line) => line !== '')
      .map(async (pid) => {
        const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
        return Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024;
      }),
  );
  return Math.max(0, ...peaks);
}

async function measure(rules: number, boundMs: number): Promise<Row[]> {
  const rig = await createRig(`bench${rules}`, [80, 81]);
  try {
    const bodies = [80, 81].map((port) => JSON.stringify(manyRules(rules, port)));
    const times: number[] = [];
    for (let round = 0; round < 4; round++) {
      const started = performance.now();
      const reply = await rig.node.request('PUT', '/api/v1/policy', bodies[round % 2] ?? '');
      times.push(performance.now() - started);
      if (reply.status > 201) throw new Error(`PUT: ${reply.status} ${reply.text.slice(0, 400)}`);
      // Enforced: the very next packets are judged by what was just written.
      const seen = [await rig.udp(80), await rig.udp(81)];
      const expected = round % 2 === 0 ? ['pong 1', 'silent 1'] : ['silent 1', 'pong 1'];
      if (seen.join() !== expected.join())
        throw new Error(`round ${round}: ${seen.join()} instead of ${expected.join()}`);
    }
    const label = `${rules.toLocaleString('en')} rules`;
    return [
      { what: `${label}: PUT until answered and enforced, first`, value: times[0] ?? 0, unit: 'ms', atMost: boundMs },
      { what: `${label}: the slowest of three more`, value: Math.max(...times.slice(1)), unit: 'ms', atMost: boundMs },
      { what: `${label}: body`, value: (bodies[0]?.length ?? 0) / 2 ** 20, unit: 'MiB' },
      { what: `${label}: peak resident memory of the process`, value: await peakMiB(rig), unit: 'MiB', atMost: 1536 },
    ];
  } finally {
    await rig.remove();
  }
}

export const policyWriteBench: Bench = {
  name: 'policy-write',
  run: async () => [...(await measure(10_000, 1_000)), ...(await measure(100_000, 5_000))],
};
