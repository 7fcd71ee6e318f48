import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { CliError } from '#cli/command-error.js';
import { built } from '#threads/built-file.js';

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

/** Returns one sentence for each file in /etc that replaces a file of the package. */
export function shadowedUnits(): string[] {
  const { stdout } = spawnSync('sh', [built('../bin/shadowed-units.sh')], { encoding: 'utf8' });
  return (stdout ?? '').split('\n').filter((line) => line !== '');
}

/** The user, the group and the capabilities of a unit. */
export type Privileges = {
  readonly user: string;
  readonly group: string;
  /** The names of capabilities as `setpriv` takes them, such as `net_admin`. */
  readonly ambient: readonly string[];
  readonly bounding: readonly string[];
};

/** Returns the privileges that systemd gives to the unit of a node, with those of its drop-ins. */
export function unitPrivileges(): Privileges {
  const { stdout } = systemctl('show', UNIT, '--property=User,Group,AmbientCapabilities,CapabilityBoundingSet');
  const of = (key: string): string => new RegExp(`^${key}=(.*)$`, 'm').exec(stdout)?.[1] ?? '';
  const capabilities = (key: string): string[] => [...of(key).matchAll(/cap_(\w+)/g)].map(([, name = '']) => name);
  const user = of('User') || 'root';
  return {
    user,
    group: of('Group') || user,
    ambient: capabilities('AmbientCapabilities'),
    bounding: capabilities('CapabilityBoundingSet'),
  };
}

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

function systemctl(...words: readonly string[]): {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
} {
  const { status, stdout, stderr, error } = spawnSync('systemctl', words, { encoding: 'utf8', timeout: TIMEOUT_MS });
  return { status, stdout: stdout ?? '', stderr: error === undefined ? stderr : error.message };
}
