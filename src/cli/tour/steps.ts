import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { largest } from '#arrays/extremes.js';
import { built } from '#threads/built-file.js';
import { firstLine, type NodeProcess, program, weirCommand } from './node-process.js';
import type { Topology } from './topology.js';

export const print = (line = ''): void => void process.stdout.write(`${line}\n`);
export const step = (number: number, line: string): void => print(`\n${number}. ${line}`);
export const result = (line: string): void => print(`   → ${line}`);

/**
 * The command with which the user calls `weir`. Under npm it is `npx weir`, because npm does not add `weir`
 * to the PATH.
 */
export const WEIR = process.env.npm_command === undefined ? 'weir' : 'npx weir';

/** The command with which the user calls `weir start`, up to its flags. */
export const START = process.env.npm_lifecycle_event === 'start' ? 'npm start --' : `${WEIR} start`;

/** The page that lists all pages of the documentation, of this clone or package. */
const DOCS = resolve(built('../docs/README.md'));

/** Prints that a tour has removed its namespaces and files, and what to do next. */
export function farewell(removed: string, next: readonly (readonly [command: string, purpose: string])[]): void {
  print(`\nRemoved: ${removed}. Nothing of the tour is left on this machine.`);
  print('Next:');
  const lines = [...next, [DOCS, 'the documentation'] as const];
  const width = largest(lines.map(([command]) => command.length));
  for (const [command, purpose] of lines) print(`   ${command.padEnd(width)}   # ${purpose}`);
}

/**
 * Returns a function that runs the command line in the folder `cwd` with the environment `environment`, and
 * prints the command with its output. Throws a `TourFailure` if the exit code is not `expected`.
 */
export function commandLine(environment: NodeJS.ProcessEnv, cwd?: string) {
  return async (words: readonly string[], expected = 0): Promise<void> => {
    const [command, ...before] = weirCommand;
    const env = { ...process.env, ...environment };
    const { code, text } = await new Promise<{ code: number; text: string }>((resolve) => {
      const done = (failure: Error | null, out: string, err: string): void => {
        const code = failure === null ? 0 : Number((failure as { code?: unknown }).code);
        resolve({ code, text: out + err });
      };
      execFile(command, [...before, ...words], { cwd, env }, done);
    });
    print(`   $ ${WEIR} ${words.join(' ')}`);
    for (const line of text.trimEnd().split('\n')) print(`     ${line}`);
    if (code !== expected) throw new TourFailure(`weir ${words.join(' ')}: exit code ${code}, expected ${expected}`);
  };
}

export class TourFailure extends Error {}

/** Runs a command of the traffic program on the client, and compares its first line. */
export async function expectLine(topology: Topology, words: readonly string[], expected: string): Promise<void> {
  const child = topology.client.start(process.execPath, [program('tour-traffic'), ...words]);
  const line = await firstLine(child);
  child.kill('SIGKILL');
  if (line !== expected) throw new TourFailure(`${words.join(' ')}: expected "${expected}", got "${line}"`);
}

/** Resolves when a signal asks the process to end, or when the reader of its output has gone. */
export function interruption(): Promise<'interrupted'> {
  return new Promise((resolve) => {
    const end = (): void => resolve('interrupted');
    // These handlers stay: a second signal must not end the process before it has removed its namespaces.
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, end);
    process.stdout.on('error', end);
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
