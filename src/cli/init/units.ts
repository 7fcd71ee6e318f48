import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { CliError } from '#cli/errors/command-error.js';
import { makeFolders } from '#files/make-folders.js';
import { built } from '#threads/built-file.js';

export const UNIT = 'weir.service';
const GUARD = 'weir-guard.service';
const NFTABLES = 'nftables.service';
const DROP_IN = `/etc/systemd/system/${NFTABLES}.d/00-weir.conf`;
const DROP_IN_SOURCE = built(`../deploy/systemd/${NFTABLES}.d/00-weir.conf`);
const DEBIAN_COMMAND = '/usr/sbin/nft -f /etc/nftables.conf';
/** The time limit in milliseconds for `systemctl`. It exceeds `TimeoutStartSec` of the unit. */
const TIMEOUT_MS = 180_000;

/** Returns whether systemd has booted this machine. */
export const hasSystemd = (): boolean => existsSync('/run/systemd/system');

export const unitExists = (): boolean => systemctl('cat', UNIT).status === 0;

/** Returns whether the unit of a node runs; false while it starts. */
export const isRunning = (): boolean => systemctl('is-active', '--quiet', UNIT).status === 0;

/** Returns whether the next boot starts the unit of a node. */
export const isEnabled = (): boolean => systemctl('is-enabled', '--quiet', UNIT).status === 0;

/** Returns one sentence for each file in /etc that replaces a file of the package. */
export function shadowedUnits(): string[] {
  const { stdout } = spawnSync('sh', [built('../bin/shadowed-units.sh')], { encoding: 'utf8' });
  return (stdout ?? '').split('\n').filter((line) => line !== '');
}

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
 * Returns a warning if nftables.service has another command than that of Debian: the drop-in of Weir would
 * replace it.
 */
export function nftablesWarnings(): readonly string[] {
  if (existsSync(DROP_IN)) return [];
  const { stdout } = systemctl('show', NFTABLES, '--property=ExecStart');
  const commands = [...stdout.matchAll(/argv\[\]=(.*?) ;/g)].map(([, command = '']) => command);
  const others = commands.filter((command) => command !== DEBIAN_COMMAND);
  if (others.length === 0) return [];
  const loss = 'if it restarts before Weir starts, the kernel forwards packets without a policy';
  return [`${NFTABLES} runs ${others.join(', ')}: ${loss}; load the guard with these rules as in ${DROP_IN_SOURCE}`];
}

/**
 * Makes nftables.service load the guard and the rules of the operator in one transaction. Does nothing if the
 * drop-in exists, or if it would replace a command of the operator.
 */
export function addDropIn(): void {
  if (existsSync(DROP_IN) || nftablesWarnings().length > 0) return;
  makeFolders(dirname(DROP_IN));
  copyFileSync(DROP_IN_SOURCE, DROP_IN);
  chmodSync(DROP_IN, 0o644);
  systemctl('daemon-reload');
}

/**
 * Enables the units of a node and its guard (nftables rules of Weir), and starts the node. A running node
 * starts again. Returns after the node has reported that it is ready (sd_notify). Throws a `CliError` if the
 * unit does not start.
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
