import { createInterface } from 'node:readline/promises';
import { MAX_BYTES } from '#files/bounded-file.js';

/** The environment, inputs and outputs of a command. Tests pass their own `Terminal`. */
export type Terminal = {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Whether the output may contain colour codes. */
  readonly colours: boolean;
  out(text: string): void;
  err(text: string): void;
  /** Resolves when the output accepts more data, or when the command is interrupted. */
  drained(): Promise<void>;
  /** Reads all of standard input. Throws if the input is larger than the largest policy. */
  input(): Promise<string>;
  /**
   * Returns a signal that aborts when the user interrupts the command or the reader closes the output. After
   * the first call, SIGINT and SIGTERM no longer end the process.
   */
  interruption(): AbortSignal;
  /** Resolves with the typed line of text. Null if the command does not run on a terminal. */
  readonly ask: ((question: string) => Promise<string>) | null;
};

export const processTerminal: Terminal = ofProcess();

function ofProcess(): Terminal {
  const { stdin, stdout, stderr, env } = process;
  const interrupted = new AbortController();
  let isHeard = false;
  // A reader such as `head` may close the pipe early, and a user the terminal (EIO). This is a normal end and
  // not an error.
  stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE' && error.code !== 'EIO') throw error;
    interrupted.abort();
  });
  return {
    environment: env,
    colours: stdout.isTTY && (env.NO_COLOR ?? '') === '' && env.TERM !== 'dumb',
    out: (text) => void stdout.write(text),
    err: (text) => void stderr.write(text),
    drained: async () => {
      if (!stdout.writableNeedDrain || interrupted.signal.aborted) return;
      await new Promise<void>((resolve) => {
        const go = (): void => {
          stdout.off('drain', go);
          interrupted.signal.removeEventListener('abort', go);
          resolve();
        };
        stdout.on('drain', go);
        interrupted.signal.addEventListener('abort', go);
      });
    },
    input: async () => {
      let text = '';
      stdin.setEncoding('utf8');
      for await (const chunk of stdin) {
        text += String(chunk);
        if (text.length > MAX_BYTES.policy) throw new Error(`the input is larger than ${MAX_BYTES.policy / 1024} KiB`);
      }
      return text;
    },
    interruption: () => {
      if (!isHeard)
        for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interrupted.abort());
      isHeard = true;
      return interrupted.signal;
    },
    ask: stdin.isTTY && stderr.isTTY ? ask : null,
  };
}

/** Asks a question on the terminal. Resolves with an empty text if the user ends the input or interrupts. */
async function ask(question: string): Promise<string> {
  const reader = createInterface({ input: process.stdin, output: process.stderr });
  const ended = new Promise<string>((resolve) => {
    reader.once('close', () => resolve(''));
  });
  try {
    return await Promise.race([reader.question(question), ended]);
  } finally {
    reader.close();
  }
}
