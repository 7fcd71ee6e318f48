import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { CliError } from '#cli/command-error.js';

export const UNIT = 'weir.service';
const GUARD = 'weir-guard.service';
/** Longer than `TimeoutStartSec` of the unit. */
const TIMEOUT_MS = 180_000;

/** Returns whether systemd has booted this machine. */
export const hasSystemd = (): boolean => existsSync('/run/systemd/system');

/** Returns whether systemd knows the unit of a node. */
export const unitExists = (): boolean => systemctl('cat', UNIT).status === 0;

/** Returns whether the unit of a node runs; false while it starts. */
export const isRunning = (): boolean => systemctl('is-active', '--quiet', UNIT).status === 0;

/**
 * Enables the units of a node and its guard, and starts the node. A running node starts again. Returns after
 * the node has reported that it is ready (sd_notify). Throws a `CliError` if the unit does not start.
 */
export function startUnits(): void {
  for (const words of [
    ['enable', GUARD, UNIT],
    ['restart', UNIT],
  ]) {
    const { status, stderr } = systemctl(...words);
    if (status === 0) continue;
    const reason = stderr.trim().split('\n')[0] ?? '';
    throw new CliError(`systemctl ${words.join(' ')} failed: ${reason}`, { fix: `journalctl -u ${UNIT} shows why` });
  }
}

function systemctl(...words: readonly string[]): { readonly status: number | null; readonly stderr: string } {
  const { status, stderr, error } = spawnSync('systemctl', words, { encoding: 'utf8', timeout: TIMEOUT_MS });
  return { status, stderr: error === undefined ? stderr : error.message };
}
