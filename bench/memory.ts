import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { type NodeOptions, type NodeProcess, startNode } from '#cli/tour/node-process.js';
import { createTopology } from '#cli/tour/topology.js';
import type { Bench, Row } from './bench.js';
import { memoryParts } from './memory-parts.js';
import { LONG_TIMEOUT, manyRules } from './policy-write.js';
import { PROXIES } from './start-up.js';

/** 200 MB. */
const IDLE_MOST_MIB = 190;
const IDLE_AFTER_MS = 30_000;
const SETTLED_MS = 3_000;
/** The time between two writes of a large policy. */
const GAP_MS = 1_000;
/**
 * The seed of each written policy. Policies with equal seeds differ in one group, so three writes change one
 * group, and then four writes bring new rules.
 */
const SEEDS = [0, 0, 0, 0, 1, 2, 3, 4];

/** Measures the resident memory of a node by its parts. */
export const memoryBench: Bench = {
  name: 'memory',
  run: async () => [
    ...(await idle('idle, 100 rules', {}, IDLE_MOST_MIB)),
    ...(await idle('idle, 100 rules, DNS proxy and service plane', { sections: PROXIES })),
    ...(await large()),
  ],
};

async function idle(label: string, options: NodeOptions, atMost?: number): Promise<readonly Row[]> {
  return withNode(options, async (node) => {
    await write(node, 100, 0);
    await node.end('SIGTERM');
    await node.restart();
    await node.ready();
    await pause(IDLE_AFTER_MS);
    return rowsOf(label, node.pid, atMost);
  });
}

async function large(): Promise<readonly Row[]> {
  return withNode({ sections: { policy: LONG_TIMEOUT } }, async (node) => {
    for (const [round, seed] of SEEDS.entries()) {
      await write(node, 100_000, seed, 80 + (round % 2));
      await pause(GAP_MS);
    }
    await pause(SETTLED_MS);
    const peak = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${node.pid}/status`, 'utf8'))?.[1]) / 1024;
    const label = '100,000 rules in groups of ten, eight writes';
    return [
      { what: `${label}: peak`, value: peak, unit: 'MiB', atMost: 800 },
      ...rowsOf(`${label}: afterwards`, node.pid, 500),
    ];
  });
}

function rowsOf(label: string, pid: number, atMost?: number): readonly Row[] {
  const { resident, proportional, anonymous, kinds } = memoryParts(pid);
  const row = (what: string, value: number): Row => ({ what: `${label}: ${what}`, value, unit: 'MiB' });
  return [
    { ...row('resident', resident), ...(atMost === undefined ? {} : { atMost }) },
    row('proportional (Pss)', proportional),
    row('anonymous', anonymous),
    ...kinds.map(([kind, mib]) => row(`of it ${kind}`, mib)),
  ];
}

async function write(node: NodeProcess, rules: number, seed: number, port = 80): Promise<void> {
  const reply = await node.request('PUT', '/api/v1/policy', manyRules(rules, 10, port, seed));
  if (reply.status >= 300) throw new Error(`PUT /api/v1/policy: ${reply.status} ${reply.text}`);
}

async function withNode(
  options: NodeOptions,
  measure: (node: NodeProcess) => Promise<readonly Row[]>,
): Promise<readonly Row[]> {
  const topology = await createTopology('memory');
  try {
    const node = await startNode(topology, options);
    try {
      await node.ready({ except: ['policy_ready'] });
      return await measure(node);
    } finally {
      await node.remove();
    }
  } finally {
    await topology.remove();
  }
}
