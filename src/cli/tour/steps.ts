import { createInterface } from 'node:readline';
import { largest } from '#arrays/extremes.js';
import { firstLine, type NodeProcess, program } from './node-process.js';
import type { Topology } from './topology.js';

export const print = (line = ''): void => void process.stdout.write(`${line}\n`);
export const step = (number: number, line: string): void => print(`\n${number}. ${line}`);
export const result = (line: string): void => print(`   → ${line}`);

/**
 * The command with which the user calls `weir`. Under npm it is `npx weir`, because npm does not add `weir`
 * to the PATH.
 */
export const WEIR = process.env.npm_command === undefined ? 'weir' : 'npx weir';

/**
 * Prints that a tour has removed its namespaces and files, and the commands to try next. `next`: these
 * commands without their first word `weir`.
 */
export function farewell(removed: string, next: readonly (readonly [words: string, purpose: string])[]): void {
  print(`\nRemoved: ${removed}. Nothing of the tour is left on this machine.`);
  print('Next:');
  const width = largest(next.map(([words]) => words.length));
  for (const [words, purpose] of next) print(`   ${WEIR} ${words.padEnd(width)}   # ${purpose}`);
}

export class TourFailure extends Error {}

/** Runs a command of the traffic program on the client, and compares its first line. */
export async function expectLine(topology: Topology, words: readonly string[], expected: string): Promise<void> {
  const child = topology.client.start(process.execPath, [program('tour-traffic'), ...words]);
  const line = await firstLine(child);
  child.kill('SIGKILL');
  if (line !== expected) throw new TourFailure(`${words.join(' ')}: expected "${expected}", got "${line}"`);
}

/** Resolves when a signal asks the process to end. */
export function interruption(): Promise<'interrupted'> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => resolve('interrupted'));
  });
}

/** Puts a policy in force, and prints the answer. */
export async function put(node: NodeProcess, body: unknown): Promise<void> {
  const started = performance.now();
  const reply = await node.request('PUT', '/api/v1/policy', body);
  if (reply.status !== 200 && reply.status !== 201)
    throw new TourFailure(`PUT /api/v1/policy: ${reply.status} ${reply.text}`);
  const ms = Math.round(performance.now() - started);
  result(
    `${reply.status}, generation ${reply.headers.get('weir-generation') ?? '?'}, enforced by the kernel after ${ms} ms`,
  );
}

/** Reads the output of a traffic program line by line. */
export function lineReader(child: ReturnType<Topology['client']['start']>) {
  if (child.stdout === null) throw new TourFailure('the process of the client has no stdout');
  const iterator = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    until: async (matches: (line: string) => boolean, what: string, withinMs = 10_000): Promise<string> => {
      let late: NodeJS.Timeout | undefined;
      const deadline = new Promise<never>((_, reject) => {
        late = setTimeout(
          () => reject(new TourFailure(`this did not happen within ${withinMs / 1_000} s: ${what}`)),
          withinMs,
        );
      });
      try {
        for (;;) {
          const next = await Promise.race([iterator.next(), deadline]);
          if (next.done === true)
            throw new TourFailure(`the traffic process on the client ended before this happened: ${what}`);
          if (matches(next.value)) return next.value;
        }
      } finally {
        clearTimeout(late);
      }
    },
  };
}
