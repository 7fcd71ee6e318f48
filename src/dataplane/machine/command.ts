import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';

const MAX_COMPLAINT = 300;

/** What a command prints, as it comes. Throws with what it complained of; the signal ends it. */
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
  // Whoever stops reading early is not told of what comes of it.
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

/** Nothing else of the environment: it may hold secrets. */
const PATH = { PATH: process.env.PATH ?? '/usr/sbin:/usr/bin:/sbin:/bin' };
