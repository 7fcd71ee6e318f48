import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import type { Readable } from 'node:stream';
import { weirCommand } from '#cli/tour/node-process.js';

export type Ended = { readonly code: number; readonly output: string; readonly left: readonly string[] };
export type Tour = {
  readonly process: ChildProcessByStdio<null, Readable, null>;
  /** Resolves with the output up to now when it contains `text`. */
  printed(text: string): Promise<string>;
  /** Resolves when the process has ended. `left` is what it leaves on this machine. */
  ended(): Promise<Ended>;
};

/** Starts `weir start`. */
export function startTour(words: readonly string[] = [], env: NodeJS.ProcessEnv = {}): Tour {
  const [command, ...before] = weirCommand;
  const tour = spawn(command, [...before, 'start', ...words], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  });
  let output = '';
  tour.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  const exited = once(tour, 'close') as Promise<[number]>;
  return {
    process: tour,
    printed: async (text) => {
      while (!output.includes(text)) {
        if (tour.exitCode !== null) throw new Error(`the tour ended before it printed "${text}": ${output}`);
        await Promise.race([once(tour.stdout, 'data'), exited]);
      }
      return output;
    },
    ended: async () => {
      const [code] = await exited;
      return { code, output, left: remainsOf(`weir-${tour.pid}-`) };
    },
  };
}

/** The namespaces, pinned programs and folders whose names begin with `mark`, and processes that name it. */
function remainsOf(mark: string): readonly string[] {
  const files = ['/run/netns', '/sys/fs/bpf', tmpdir()].flatMap((folder) =>
    readdirSync(folder).filter((name) => name.startsWith(mark)),
  );
  const commands = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(commandOf);
  return [...files, ...commands.filter((command) => command.includes(mark))];
}

function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return '';
  }
}

/** The link to the console in the output of `weir start --keep`; an empty text without one. */
export const linkIn = (output: string): string => /http:\/\/\S+#code=\S+/.exec(output)?.[0] ?? '';
