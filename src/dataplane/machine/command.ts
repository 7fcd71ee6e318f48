import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';

const MAX_COMPLAINT = 300;

/**
 * Yields the standard output of a command in chunks. If the exit code is not 0, throws an error with the
 * first 300 characters of stderr. An abort of the signal kills the command.
 */
export async function* printed(command: string, args: readonly string[], signal: AbortSignal): AsyncGenerator<Buffer> {
  const child = spawn(command, [...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    signal,
    killSignal: 'SIGKILL',
    env: PATH,
  });
  const complaint = text(child.stderr);
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject).once('close', resolve);
  });
  // If the reader of the output stops early, no code awaits `ended`. Without this `catch`, a failure of the
  // command would then be an unhandled rejection.
  ended.catch(() => {});
  try {
    for await (const chunk of child.stdout) yield chunk as Buffer;
    const code = await ended;
    if (code !== 0)
      throw new Error(`${command} ${args.join(' ')}: ${(await complaint).trim().slice(0, MAX_COMPLAINT)}`);
  } finally {
    child.kill('SIGKILL');
  }
}

/**
 * The command gets only the environment variable PATH, because other variables of this process may contain
 * secrets.
 */
const PATH = { PATH: process.env.PATH ?? '/usr/sbin:/usr/bin:/sbin:/bin' };
