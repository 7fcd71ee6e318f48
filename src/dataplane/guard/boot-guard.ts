import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { replaceDurably } from '#files/replaced-file.js';

/** The systemd unit that loads the boot file before the network starts (`deploy/systemd/`). */
const UNIT = 'weir-guard.service';
const NFTABLES_UNIT = 'nftables.service';
/**
 * Pattern by which the drop-in of nftables.service includes the boot file. With a plain file name, nft would
 * fail if the file is missing.
 */
const LOADED = 'guard*.nft';
/** The folders of units in the order in which systemd searches them. */
const UNITS = [
  '/etc/systemd/system',
  '/run/systemd/system',
  '/usr/local/lib/systemd/system',
  '/usr/lib/systemd/system',
];
/** The commands of nftables.service that flush all rules. */
const FLUSHING = ['ExecStart', 'ExecReload', 'ExecStop'];

/**
 * The boot file contains the nft commands of the guard (Weir's nftables rules). After a boot, no pinned BPF
 * program exists, so only these rules drop packets until Weir starts. `isOpen`: the file is empty, because
 * with `policy.fallback: allow` the node forwards packets before the first policy.
 */
export type BootGuard = { readonly path: string; readonly isOpen: boolean };

/**
 * Keeps the boot file equal to the guard (nftables rules of Weir) in the kernel, and reports why the file
 * would not protect the next boot.
 */
export class BootFile {
  #failure: string | undefined;

  constructor(readonly guard: BootGuard) {}

  /** Writes the file if its content differs. A crash leaves the old or the new content. */
  write(lines: readonly string[]): void {
    const { path, isOpen } = this.guard;
    const text = isOpen ? '' : `${HEADER}${lines.join('\n')}\n`;
    try {
      if (textOf(path) !== text) replaceDurably(path, text, { mode: 0o600 });
      this.#failure = undefined;
    } catch (failure) {
      this.#failure = (failure as Error).message;
    }
  }

  /** Returns at most one warning: why the boot file would not protect the next boot. */
  warnings(): string[] {
    if (this.#failure !== undefined) return [`the boot file of the guard is not written: ${this.#failure}`];
    return this.guard.isOpen || !isBootedBySystemd() ? [] : unitWarnings(this.guard.path);
  }
}

const HEADER = `# Weir writes this file, and ${UNIT} loads it at boot.\n`;

/**
 * Empties the boot file. Returns false if there is no such file, or if it is empty already. Root calls this
 * in the folder of another user: a symbolic link or a FIFO is replaced, and neither followed nor read.
 */
export function emptyBootFile(path: string): boolean {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined || (stats.isFile() && stats.size === 0)) return false;
  const { uid, gid } = statSync(dirname(path));
  replaceDurably(path, '', { mode: 0o600, uid, gid });
  return true;
}

/**
 * Returns a warning if no enabled unit below the folders `units` loads the file `path`. Returns another one
 * if nftables.service is enabled, and a command of it flushes the guard without loading the file in the same
 * transaction.
 */
export function unitWarnings(path: string, units: readonly string[] = UNITS): string[] {
  const warnings: string[] = [];
  const guard = commandsOf(units, UNIT);
  if (guard?.('ExecStart').some((command) => command.endsWith(` -f ${path}`)) !== true) {
    const wrong = guard === undefined ? `${UNIT} is not enabled` : `${UNIT} does not load ${path}`;
    warnings.push(`${wrong}: after a boot, the kernel forwards packets without a policy until Weir starts`);
  }
  const nftables = commandsOf(units, NFTABLES_UNIT);
  const included = join(dirname(path), LOADED);
  const without = FLUSHING.filter((key) => nftables?.(key).some((command) => command.includes(included)) === false);
  if (without.length > 0) {
    warnings.push(
      `${without.join(', ')} of ${NFTABLES_UNIT} with its drop-ins does not load ${path}: if it restarts before Weir starts, the kernel forwards packets without a policy`,
    );
  }
  return warnings;
}

/**
 * Returns a function that returns the commands of an enabled unit for a key such as `ExecStart`, after its
 * drop-ins are applied; undefined if the unit is not enabled. systemd reads drop-ins in the order of their
 * names, and an empty value removes the commands before it.
 */
function commandsOf(units: readonly string[], unit: string): ((key: string) => readonly string[]) | undefined {
  const enabled = pathsIn(units)
    .filter((folder) => /\.(wants|requires)$/.test(folder))
    .map((folder) => textOf(join(folder, unit)))
    .find((text) => text !== undefined);
  if (enabled === undefined) return undefined;
  const lines = [enabled, ...dropInsOf(units, unit)].join('\n').split('\n');
  return (key) => {
    const values = lines.filter((line) => line.startsWith(`${key}=`)).map((line) => line.slice(key.length + 1).trim());
    return values.slice(values.lastIndexOf('') + 1);
  };
}

/** Returns the texts of the drop-ins of a unit. A drop-in hides those of the same name in later folders. */
function dropInsOf(units: readonly string[], unit: string): string[] {
  const byName = new Map<string, string>();
  for (const path of pathsIn(units.map((folder) => join(folder, `${unit}.d`)))) {
    if (path.endsWith('.conf') && !byName.has(basename(path))) byName.set(basename(path), path);
  }
  return [...byName.keys()].sort().map((name) => textOf(byName.get(name) as string) ?? '');
}

/**
 * Returns whether systemd has booted the machine, and this process is in the first network namespace, for
 * which the unit loads the file.
 */
function isBootedBySystemd(): boolean {
  if (!existsSync('/run/systemd/system')) return false;
  try {
    return readlinkSync('/proc/1/ns/net') === readlinkSync('/proc/thread-self/ns/net');
  } catch {
    // Only root may read the namespaces of process 1. A node without root is assumed to be in the first
    // namespace.
    return true;
  }
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (failure) {
    if ((failure as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw failure;
  }
}

function pathsIn(folders: readonly string[]): string[] {
  return folders.flatMap((folder) => entriesOf(folder).map((name) => join(folder, name)));
}

function entriesOf(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch (failure) {
    if (['ENOENT', 'ENOTDIR'].includes((failure as NodeJS.ErrnoException).code ?? '')) return [];
    throw failure;
  }
}
