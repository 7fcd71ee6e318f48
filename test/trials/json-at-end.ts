import type { ChildProcess } from 'node:child_process';

/**
 * Waits for `waitMs` milliseconds, and closes the standard input of a process. Returns the JSON value that
 * the process then prints.
 */
export async function jsonAtEnd<Value>(child: ChildProcess, waitMs: number): Promise<Value> {
  await new Promise((resolve) => setTimeout(resolve, waitMs));
  const lines: string[] = [];
  child.stdout?.on('data', (text: string) => lines.push(text));
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.stdin?.end();
  await ended;
  return JSON.parse(lines.join('')) as Value;
}
