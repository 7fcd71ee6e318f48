import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

export type Process = { readonly pid: number; readonly command: string };

/**
 * Returns a process that has the socket with this inode number open; undefined if there is none, or if this
 * process may not read the descriptors of that process.
 */
export function processOfSocket(inode: string): Process | undefined {
  const link = `socket:[${inode}]`;
  for (const pid of entriesOf('/proc').filter((name) => /^\d+$/.test(name))) {
    const folder = `/proc/${pid}/fd`;
    if (entriesOf(folder).some((fd) => targetOf(`${folder}/${fd}`) === link)) return processOf(Number(pid));
  }
  return undefined;
}

export function processOf(pid: number): Process {
  try {
    return { pid, command: readFileSync(`/proc/${pid}/comm`, 'utf8').trim() };
  } catch {
    return { pid, command: '' };
  }
}

/** Returns the netlink sockets with this protocol in the network namespace of this thread. */
export function netlinkSockets(protocol: number): { readonly portId: number; readonly inode: string }[] {
  const rows = rowsOf('/proc/thread-self/net/netlink').filter(([, ofProtocol]) => Number(ofProtocol) === protocol);
  return rows.map((row) => ({ portId: Number(row[2]), inode: row[9] ?? '' }));
}

/** Returns the fields of each row of a table in /proc, without its heading. */
function rowsOf(path: string): string[][] {
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n').slice(1);
  return lines.map((line) => line.trim().split(/\s+/));
}

function entriesOf(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // The process has ended, or belongs to another user.
    return [];
  }
}

function targetOf(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}
