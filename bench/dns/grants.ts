import { createTopology } from '#cli/tour/topology.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { detach } from '#dataplane/thread/detach.js';
import { compile } from '#policy/compile/compile.js';
import { datapathOptions } from '#test/kernel/datapath-options.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { group, policy, rule } from '#test/policy/sample.js';
import type { Bench, Row } from '../bench.js';
import { mapBytes } from '../forward/program-runs.js';
import { residentMiB } from '../resident.js';

const ADDRESSES = 1_000_000;
const AT_ONCE = 1_000;
const FIRST = 0x0b00_0000;
const HOUR_NS = 3_600_000_000_000n;
const SECOND_NS = 1_000_000_000n;
const PROBES = 2_000;

const pattern = { kind: 'suffix', labels: ['example', 'com'], text: '*.example.com' } as const;

/**
 * Measures the cost of a million learned addresses: the memory, the time to learn one more address, and the
 * time of a restart. Measures the time to learn also while the sweep removes expired grants.
 */
async function run(): Promise<readonly Row[]> {
  const topology = await createTopology('million');
  const leave = enterNamespace(topology.node.name);
  const options = datapathOptions(topology.pinPath, { grantCapacity: ADDRESSES + 100_000, programCapacity: 8_192 });
  const program = compile(policy([group(['0.0.0.0/0'], [rule({ hostname: pattern })])]));
  let datapath = openDatapath(options);
  try {
    await datapath.open();
    await datapath.attach();
    await datapath.stage(program, 1);
    await datapath.flip();
    const residentBefore = residentMiB(process.pid);
    const grant = async (first: number, count: number, lifeNs: bigint): Promise<number> => {
      const addresses = Array.from({ length: count }, (_, index) => first + index);
      const before = performance.now();
      const expiresAtNs = process.hrtime.bigint() + lifeNs;
      const { refused } = await datapath.grant([{ pattern: pattern.text, addresses, expiresAtNs }]);
      if (refused > 0) throw new Error(`the datapath refused grants for ${refused} of ${count} addresses`);
      return performance.now() - before;
    };
    let learningMs = 0;
    for (let at = 0; at < ADDRESSES; at += AT_ONCE) learningMs += await grant(FIRST + at, AT_ONCE, HOUR_NS);
    const residentAfter = residentMiB(process.pid);
    const one = await waits(() => grant(FIRST, 1, HOUR_NS));
    await datapath.close();
    datapath = openDatapath(options);
    const before = performance.now();
    const { adopted } = await datapath.open();
    const restartMs = performance.now() - before;
    if (!adopted) throw new Error('the datapath did not adopt the policy program in the kernel after its restart');
    const kept = (await datapath.stats()).maps.grants?.entries ?? 0;
    // Learn an address whose grant expires after 2 s, so that the sweep over the million grants finds an
    // expired grant. Meanwhile learn one address 2,000 times: the p99 shows how long the sweep delays
    // learning.
    await datapath.stage(program, 1);
    await datapath.flip();
    await grant(FIRST + ADDRESSES, 1, 2n * SECOND_NS);
    const whileSwept = await waits(() => grant(FIRST, 1, HOUR_NS));
    return [
      { what: 'a million addresses: learn one', value: (learningMs * 1_000) / ADDRESSES, unit: 'µs' },
      { what: 'kernel memory of all maps', value: mapBytes('self') / 2 ** 20, unit: 'MiB' },
      { what: 'growth of the resident memory', value: residentAfter - residentBefore, unit: 'MiB' },
      { what: 'learn one more address, median', value: one.median, unit: 'ms' },
      { what: 'learn one more address, p99', value: one.p99, unit: 'ms' },
      { what: 'takeover after the process ended', value: restartMs, unit: 'ms' },
      { what: 'grants after the takeover', value: kept, unit: '', atLeast: ADDRESSES },
      { what: 'learn one more address during the sweep, p99', value: whileSwept.p99, unit: 'ms' },
    ];
  } finally {
    await datapath.close();
    detach(topology.pinPath);
    leave();
    await topology.remove();
  }
}

async function waits(act: () => Promise<number>): Promise<{ readonly median: number; readonly p99: number }> {
  const all: number[] = [];
  for (let probe = 0; probe < PROBES; probe++) all.push(await act());
  all.sort((one, other) => one - other);
  return { median: all[PROBES >> 1] ?? 0, p99: all[Math.floor(PROBES * 0.99)] ?? 0 };
}

export const grantsBench: Bench = { name: 'grants', run };
