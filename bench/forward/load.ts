import { spawnSync } from 'node:child_process';
import type { Topology } from '#cli/tour/topology.js';

const LIMIT_MS = 20_000;

type Loaded = { readonly ms: number };

/**
 * Runs a command on the node with `text` as standard input. Returns its duration, or undefined if the command
 * takes longer than twenty seconds.
 */
export function load(topology: Topology, command: readonly string[], text: string): Loaded | undefined {
  const started = performance.now();
  const run = spawnSync('nsenter', [`--net=/run/netns/${topology.node.name}`, ...command], {
    input: text,
    encoding: 'utf8',
    timeout: LIMIT_MS,
    killSignal: 'SIGKILL',
  });
  if (run.error !== undefined && 'code' in run.error && run.error.code === 'ETIMEDOUT') return undefined;
  if (run.status !== 0) throw new Error(`${command.join(' ')}: ${run.stderr.slice(0, 400)}`);
  return { ms: performance.now() - started };
}
