import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { Random, seedOf } from '#test/seed.js';
import { ALLOWED, DENIED, policyOf } from './policies.js';
import { createProbedNode, NOTHING_LOST, type ProbedNode } from './probed-node.js';

/**
 * Number of runs of a takeover that each test kills, each at a random bpf system call. With WEIR_CUTS=all, a
 * test kills one run at each bpf system call.
 */
const CUTS = 3;
const NEVER = 60_000;
const processFile = join(fileURLToPath(new URL('../..', import.meta.url)), 'dist/test/kernel/successor-process.js');

let node: ProbedNode;
beforeAll(async () => {
  node = await createProbedNode('cut');
});
afterEach(() => node.clear());
afterAll(async () => {
  await node?.remove();
});

type Step = { readonly options: DatapathOptions; readonly destinations?: number };

/**
 * Runs a takeover in another process, and kills that process at its bpf system call number `killedAt`.
 * Returns the number of bpf system calls that the process made.
 */
async function takeOver({ options, destinations }: Step, killedAt: number): Promise<number> {
  const log = `/tmp/weir-${process.pid}-bpf`;
  const { code, stderr } = await node.topology.node.run(
    'strace',
    ...['-f', '--seccomp-bpf', '-qq', '-o', log, '-e', 'trace=bpf', '-e', `inject=bpf:signal=SIGKILL:when=${killedAt}`],
    ...[process.execPath, processFile, JSON.stringify(options)],
    ...(destinations === undefined ? [] : [`${destinations}`, '100']),
  );
  const lines = readFileSync(log, 'utf8').split('\n');
  rmSync(log);
  if (code !== 0 && !lines.some((line) => line.includes('killed by SIGKILL'))) throw new Error(stderr);
  return lines.filter((line) => line.includes('bpf(')).length;
}

function cutsOf(calls: number): number[] {
  const random = new Random(seedOf(3));
  const all = Array.from({ length: calls }, (_, index) => index + 1);
  const cuts = process.env.WEIR_CUTS === 'all' ? all : Array.from({ length: CUTS }, () => random.between(1, calls));
  console.log(`${calls} bpf calls, killed at ${cuts.join()} (seed ${random.seed}, WEIR_SEED)`);
  return cuts;
}

test('if a new process is killed while it takes over the BPF maps and migrates flows, the next process completes this without packet loss', async () => {
  const variants = [node.options({ flowCapacity: 131_072 }), node.options()];
  node.start().attach();
  node.putInForce(policyOf(0), 1);
  node.datapath().close();
  await node.startProbes();
  const cuts = cutsOf(await takeOver({ options: node.options({ flowCapacity: 131_072 }) }, NEVER));
  for (const [turn, cut] of cuts.entries()) {
    const options = variants[(turn + 1) % 2] ?? node.options();
    await takeOver({ options }, cut);
    await takeOver({ options }, NEVER);
    expect(node.mapSets(), `killed at ${cut}`).toHaveLength(1);
  }
  node.start(variants[cuts.length % 2]).attach();
  const { miscounted: _, unaccounted: __, ...outcome } = await node.endProbes();
  expect(outcome).toEqual(NOTHING_LOST);
}, 3_600_000);

const beginnings: Record<string, () => void> = {
  'a policy is put into larger maps': () => {
    node.start().attach();
    node.putInForce(policyOf(0), 1);
    node.datapath().close();
  },
};

test.each(Object.keys(beginnings))(
  'after a process is killed in the middle of a change (%s), the old or the new policy is in force, and the next process takes over the BPF maps',
  async (kind) => {
    const begin = beginnings[kind] ?? (() => undefined);
    const step = { options: node.options(), destinations: 4_000 };
    begin();
    const cuts = cutsOf(await takeOver(step, NEVER));
    const verdicts = async (): Promise<boolean[]> => Promise.all([node.answers(ALLOWED), node.answers(DENIED)]);
    for (const cut of cuts) {
      await node.clear();
      begin();
      await takeOver(step, cut);
      expect(await verdicts(), `killed at ${cut}`).toEqual([true, false]);
      await takeOver(step, NEVER);
      expect(await verdicts(), `finished after ${cut}`).toEqual([true, false]);
      expect(node.mapSets(), `finished after ${cut}`).toHaveLength(1);
    }
  },
  3_600_000,
);
