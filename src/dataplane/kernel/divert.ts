import { spawnSync } from 'node:child_process';
import { redirectBit } from '#dataplane/program/settings.js';

/** Preference of the rule, and number of its table; `bpf/others.h` knows both. */
const NUMBER = '8353';

class DiversionFailure extends Error {
  override readonly name = 'DiversionFailure';
  readonly code = 'diversion_failed';
}

/**
 * Has the node deliver to itself what the datapath marks as diverted, whatever address it is for. Without it such a packet
 * is not forwarded: it has a socket, or comes to the guard.
 */
export function makeDiversion(markMask: number): void {
  const mark = `0x${redirectBit(markMask).toString(16)}`;
  if (!stands(mark)) {
    removeDiversion();
    ip('rule', 'add', 'pref', NUMBER, 'fwmark', `${mark}/${mark}`, 'lookup', NUMBER);
  }
  ip('route', 'replace', 'local', '0.0.0.0/0', 'dev', 'lo', 'table', NUMBER);
}

/** Does nothing where there is none. */
export function removeDiversion(): void {
  while (run(['rule', 'del', 'pref', NUMBER, 'lookup', NUMBER]).status === 0);
  run(['route', 'flush', 'table', NUMBER]);
}

function stands(mark: string): boolean {
  return run(['rule', 'show', 'pref', NUMBER]).stdout.includes(`fwmark ${mark}/${mark} lookup ${NUMBER}`);
}

function ip(...words: readonly string[]): void {
  const { status, stderr, error } = run(words);
  if (status !== 0) throw new DiversionFailure(`ip ${words.join(' ')}: ${error?.message ?? stderr.trim()}`);
}

function run(words: readonly string[]) {
  return spawnSync('ip', ['-4', ...words], { encoding: 'utf8' });
}
