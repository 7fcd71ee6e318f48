import {
  closeSync,
  existsSync,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  truncateSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';

/** The systemd unit that loads the boot file before the network starts (`deploy/systemd/`). */
const UNIT = 'weir-guard.service';
const NFTABLES_UNIT = 'nftables.service';
/** How the drop-in of nftables.service names the file: nft accepts a missing file only for a pattern. */
const LOADED = 'guard*.nft';
/** The folders of the operator's units and of the units of packages. */
const UNITS = ['/etc/systemd/system', '/usr/lib/systemd/system'];

/**
 * The boot file contains the nft commands of the guard (Weir's nftables rules). The BPF file system is empty
 * after a boot, so a pinned program closes nothing until Weir starts. `isOpen`: the file is empty, because
 * `policy.fallback: allow` forwards packets before the first policy.
 */
export type BootGuard = { readonly path: string; readonly isOpen: boolean };

/** Keeps the boot file equal to the guard in the kernel, and reports what prevents the file from its work. */
export class BootFile {
  #failure: string | undefined;

  constructor(readonly guard: BootGuard) {}

  /** Writes the file if its content differs. A crash leaves the old or the new content. */
  write(lines: readonly string[]): void {
    const { path, isOpen } = this.guard;
    const text = isOpen ? '' : `${HEADER}${lines.join('\n')}\n`;
    try {
      if (textOf(path) !== text) replace(path, text);
      this.#failure = undefined;
    } catch (failure) {
      this.#failure = (failure as Error).message;
    }
  }

  /** Returns a list with at most one warning: why the boot file does not close the next boot. */
  warnings(): string[] {
    if (this.#failure !== undefined) return [`the boot file of the guard is not written: ${this.#failure}`];
    return this.guard.isOpen || !isBootedBySystemd() ? [] : unitWarnings(this.guard.path);
  }
}

const HEADER = `# Weir writes this file, and ${UNIT} loads it at boot.\n`;

/** Empties the boot file. Returns false if there is no such file, or if it is empty already. */
export function emptyBootFile(path: string): boolean {
  if (!textOf(path)) return false;
  truncateSync(path);
  return true;
}

/**
 * Returns a warning if no enabled unit below the folders `units` loads the file `path`. Returns another one
 * if nftables.service is enabled and flushes the guard without loading the file in the same transaction.
 */
export function unitWarnings(path: string, units: readonly string[] = UNITS): string[] {
  const warnings: string[] = [];
  const guard = textsOf(units, UNIT);
  if (guard === undefined || !guard.includes(` -f ${path}\n`)) {
    const wrong = guard === undefined ? `${UNIT} is not enabled` : `${UNIT} does not load ${path}`;
    warnings.push(`${wrong}: after a boot, the kernel forwards packets without a policy until Weir starts`);
  }
  const nftables = textsOf(units, NFTABLES_UNIT);
  if (nftables !== undefined && !nftables.includes(join(dirname(path), LOADED))) {
    warnings.push(
      `${NFTABLES_UNIT} has no drop-in that loads ${path}: if it restarts before Weir starts, the kernel forwards packets without a policy`,
    );
  }
  return warnings;
}

/** Returns the text of an enabled unit and of its drop-ins; undefined if the unit is not enabled. */
function textsOf(units: readonly string[], unit: string): string | undefined {
  const enabled = pathsIn(units)
    .filter((folder) => /\.(wants|requires)$/.test(folder))
    .map((folder) => textOf(join(folder, unit)))
    .find((text) => text !== undefined);
  if (enabled === undefined) return undefined;
  const added = pathsIn(units.map((folder) => join(folder, `${unit}.d`))).map((path) => textOf(path) ?? '');
  return [enabled, ...added].join('\n');
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
    // Only root may read the namespaces of process 1. A node of another user is in the first namespace.
    return true;
  }
}

function replace(path: string, text: string): void {
  const draft = `${path}.new`;
  const fd = openSync(draft, 'w', 0o600);
  try {
    writeSync(fd, text);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  renameSync(draft, path);
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
