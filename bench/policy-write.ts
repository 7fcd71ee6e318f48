import { readFile } from 'node:fs/promises';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig } from '#test/e2e/rig.js';
import { Random } from '#test/seed.js';
import type { Bench, Row } from './bench.js';
import { load } from './forward/load.js';
import { mapBytes } from './forward/program-runs.js';

type Match = {
  readonly dst_ips?: readonly string[];
  readonly dst_cidrs?: readonly string[];
  readonly proto: string;
  readonly dst_ports: readonly (number | string)[];
};
type Document = {
  readonly default_policy: 'deny';
  readonly source_groups: readonly {
    readonly id: string;
    readonly mode: 'enforce';
    readonly sources: { readonly ips?: readonly string[]; readonly cidrs?: readonly string[] };
    readonly rules: readonly { readonly id: string; readonly action: string; readonly match: Match }[];
  }[];
};

/** Returns a source group that allows the client to reach UDP port `port` of the server. */
export function clientGroup(port: number): Document['source_groups'][number] {
  return {
    id: 'client',
    mode: 'enforce',
    sources: { ips: [ADDRESSES.client] },
    rules: [{ id: 'port', action: 'allow', match: { dst_ips: [ADDRESSES.server], proto: 'udp', dst_ports: [port] } }],
  };
}

/**
 * Returns a policy of the client's group and groups of `each` rules, with `count` rules in total. If `each`
 * is at least `count`, one group applies to all sources instead.
 */
export function manyRules(count: number, each: number, port: number, seed = count): Document {
  const random = new Random(seed);
  const address = (): string =>
    `${random.between(11, 200)}.${random.between(0, 255)}.${random.between(0, 255)}.${random.between(0, 255)}`;
  const rule = (index: number): Document['source_groups'][number]['rules'][number] => {
    const low = random.between(1, 60_000);
    const length = random.pick([32, 32, 32, 28, 24, 24, 16]);
    return {
      id: `r${index}`,
      action: random.pick(['allow', 'allow', 'deny']),
      match: {
        ...(length === 32 ? { dst_ips: [address()] } : { dst_cidrs: [`${network(address(), length)}/${length}`] }),
        proto: random.pick(['tcp', 'tcp', 'udp']),
        dst_ports: random.pick<readonly (number | string)[]>([
          [443],
          [80, 443],
          [`${low}-${low + random.between(0, 500)}`],
        ]),
      },
    };
  };
  const groups: Document['source_groups'] = Array.from({ length: Math.ceil((count - 1) / each) }, (_, group) => ({
    id: `g${group}`,
    mode: 'enforce',
    sources: { cidrs: [each < count ? `10.${100 + (group >> 8)}.${group & 255}.0/24` : '0.0.0.0/0'] },
    rules: Array.from({ length: Math.min(each, count - 1 - group * each) }, (_, index) => rule(index)),
  }));
  return { default_policy: 'deny', source_groups: [clientGroup(port), ...groups] };
}

/**
 * Returns the policy as input of `nft -f`. Each group is a chain, and a verdict map selects the chain by
 * source, because the sources of the groups do not overlap. A rule with two ports becomes two nftables rules:
 * with a set of two ports in one rule, `nft` takes several times as long.
 */
function asNftables({ source_groups: groups }: Document): string {
  const chains = groups.map(({ id, rules }) => {
    const lines = rules.flatMap(({ action, match }) => {
      const destination = [...(match.dst_ips ?? []), ...(match.dst_cidrs ?? [])].join();
      const verdict = action === 'allow' ? 'accept' : 'drop';
      return match.dst_ports.map((port) => `ip daddr ${destination} ${match.proto} dport ${port} ${verdict}`);
    });
    return `chain ${id} {\n${lines.join('\n')}\n}`;
  });
  const jumps = groups.map(
    ({ id, sources }) => `${[...(sources.ips ?? []), ...(sources.cidrs ?? [])].join()} : jump ${id}`,
  );
  return `flush ruleset
table ip peer {
${chains.join('\n')}
map groups { type ipv4_addr : verdict; flags interval; elements = { ${jumps.join(',\n')} }; }
chain forward { type filter hook forward priority filter; policy drop; ct state established accept; ip saddr vmap @groups; }
}
`;
}

function network(address: string, length: number): string {
  const number = address.split('.').reduce((sum, byte) => sum * 256 + Number(byte), 0);
  const masked = Math.floor(number / 2 ** (32 - length)) * 2 ** (32 - length);
  return [24, 16, 8, 0].map((shift) => Math.floor(masked / 2 ** shift) % 256).join('.');
}

type Memory = { readonly peakMiB: number; readonly nowMiB: number; readonly kernelMapsMiB: number };

/**
 * Returns the peak and the current resident memory of the node's process, and the kernel memory of the BPF
 * maps that the process has open.
 */
async function memoryOf(rig: NodeRig): Promise<Memory> {
  const { stdout } = await rig.topology.node.run('pgrep', '-f', rig.node.folder);
  const found = await Promise.all(
    stdout.split('\n').map(async (pid) => {
      const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
      const mib = (field: string): number => Number(new RegExp(`${field}:\\s+(\\d+)`).exec(status)?.[1] ?? 0) / 1024;
      return { pid: Number(pid), peakMiB: mib('VmHWM'), nowMiB: mib('VmRSS') };
    }),
  );
  const [node] = found.sort((a, b) => b.peakMiB - a.peakMiB);
  if (node === undefined) throw new Error('no process of the node was found');
  return { ...node, kernelMapsMiB: mapBytes(node.pid) / 2 ** 20 };
}

/**
 * Options of the section `policy`. The activation timeout of 60 s is so long that a slow policy write gives a
 * figure and not an error.
 */
export const LONG_TIMEOUT = { fallback: 'deny', activation_timeout: '60s' };

/**
 * Measures `rounds` policy writes, which alternately allow UDP port 80 and UDP port 81 to the client. Returns
 * the time of each write in milliseconds.
 */
async function writes(rig: NodeRig, path: string, bodies: readonly string[], rounds: number): Promise<number[]> {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const started = performance.now();
    const reply = await rig.node.request('PUT', path, bodies[round % 2] ?? '');
    times.push(performance.now() - started);
    if (reply.status > 201) throw new Error(`PUT ${path}: ${reply.status} ${reply.text.slice(0, 400)}`);
    // Check that the new policy is in force: the client gets a reply only from the port that the policy
    // allows.
    const seen = [await rig.udp(80), await rig.udp(81)];
    const expected = round % 2 === 0 ? ['pong 1', 'silent 1'] : ['silent 1', 'pong 1'];
    if (seen.join() !== expected.join())
      throw new Error(`round ${round}: ports 80 and 81 answered "${seen.join()}", expected "${expected.join()}"`);
  }
  return times;
}

/**
 * Measures repeated writes of one source group of a large policy. All groups except the written group stay
 * unchanged.
 */
async function measureGroup(shape: string, rules: number, each: number): Promise<Row[]> {
  const rig = await createRig(`benchg${each === rules ? 1 : each}`, [80, 81], { sections: { policy: LONG_TIMEOUT } });
  try {
    await writes(rig, '/api/v1/policy', [JSON.stringify(manyRules(rules, each, 80))], 1);
    const { items } = (await rig.node.request('GET', '/api/v1/policies')).body as { items: { id: string }[] };
    const path = `/api/v1/policies/${items[0]?.id ?? ''}/source-groups/client`;
    const bodies = [80, 81].map((port) => JSON.stringify(clientGroup(port)));
    const times = await writes(rig, path, bodies, 12);
    const label = `one group of ${rules.toLocaleString('en')} rules changed, ${shape}`;
    const sorted = times.slice(1).sort((left, right) => left - right);
    return [
      { what: `${label}: PUT until answered and enforced, first`, value: times[0] ?? 0, unit: 'ms' },
      { what: `${label}: median of eleven more`, value: sorted[5] ?? 0, unit: 'ms', atMost: 150 },
      { what: `${label}: slowest of eleven more`, value: sorted.at(-1) ?? 0, unit: 'ms' },
    ];
  } finally {
    await rig.remove();
  }
}

async function measure(rules: number, firstMs: number, nextMs: number): Promise<Row[]> {
  const rig = await createRig(`bench${rules}`, [80, 81], { sections: { policy: LONG_TIMEOUT } });
  try {
    const bodies = [80, 81].map((port) => JSON.stringify(manyRules(rules, 100, port)));
    const times = await writes(rig, '/api/v1/policy', bodies, 4);
    const others = [1, 2, 3, 4].map((seed) => JSON.stringify(manyRules(rules, 100, seed % 2 === 1 ? 80 : 81, seed)));
    const anew = [
      ...(await writes(rig, '/api/v1/policy', others.slice(0, 2), 2)),
      ...(await writes(rig, '/api/v1/policy', others.slice(2), 2)),
    ];
    const memory = await memoryOf(rig);
    const competitor = load(rig.topology, ['nft', '-f', '-'], asNftables(manyRules(rules, 100, 80)));
    const label = `${rules.toLocaleString('en')} rules`;
    return [
      { what: `${label}: PUT until answered and enforced, first`, value: times[0] ?? 0, unit: 'ms', atMost: firstMs },
      {
        what: `${label}: slowest of three more, one group changed`,
        value: Math.max(...times.slice(1)),
        unit: 'ms',
      },
      {
        what: `${label}: slowest of four more, every rule new`,
        value: Math.max(...anew),
        unit: 'ms',
        atMost: nextMs,
      },
      { what: `${label}: body`, value: (bodies[0]?.length ?? 0) / 2 ** 20, unit: 'MiB' },
      ...(competitor === undefined
        ? []
        : [{ what: `${label}: nft -f of the same policy`, value: competitor.ms, unit: 'ms' }]),
      { what: `${label}: peak resident memory of the process`, value: memory.peakMiB, unit: 'MiB', atMost: 800 },
      { what: `${label}: resident memory after the writes`, value: memory.nowMiB, unit: 'MiB', atMost: 700 },
      { what: `${label}: kernel memory of its maps`, value: memory.kernelMapsMiB, unit: 'MiB' },
    ];
  } finally {
    await rig.remove();
  }
}

/**
 * Measures the time from `PUT /api/v1/policy` to the last byte of its response, and the memory of the node,
 * for large policies. For comparison, also measures `nft -f` with the same policy.
 */
export const policyWriteBench: Bench = {
  name: 'policy-write',
  run: async () => [
    ...(await measure(10_000, 2_000, 800)),
    ...(await measure(100_000, 3_000, 3_000)),
    ...(await measureGroup('groups of ten', 100_000, 10)),
    ...(await measureGroup('nearly all in one group', 100_000, 100_000)),
  ],
};
