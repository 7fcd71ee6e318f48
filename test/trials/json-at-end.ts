import type { ChildProcess } from 'node:child_process';

/** Waits for `waitMs` milliseconds, closes the standard input of a process, and returns the JSON value that it prints. */
export async function jsonAtEnd<Value>(child: ChildProcess, waitMs: number): Promise<Value> {
  await new Promise((resolve) => setTimeout(resolve, waitMs));
  const lines: string[] = [];
  child.stdout?.on('data', (text: string) => lines.push(text));
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.stdin?.end();
  await ended;
  return JSON.parse(lines.join('')) as Value;
}
