import { closeSync, openSync, readdirSync, readFileSync, readlinkSync, readSync } from 'node:fs';

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

/** Returns whether a process is in the control group of a systemd unit. */
export function isInUnit(pid: number, unit: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/cgroup`, 'utf8').split(/[/\n]/).includes(unit);
  } catch {
    return false;
  }
}

/** Returns the netlink sockets with this protocol in the network namespace of this thread. */
export function netlinkSockets(protocol: number): { readonly portId: number; readonly inode: string }[] {
  const rows = rowsOf('/proc/thread-self/net/netlink').filter(([, ofProtocol]) => Number(ofProtocol) === protocol);
  return rows.map((row) => ({ portId: Number(row[2]), inode: row[9] ?? '' }));
}

/** A TCP socket that listens. `address`: as text; `::` for any address. */
export type TcpListener = { readonly address: string; readonly uid: number; readonly inode: string };

/** Returns the TCP sockets that listen on a port in the network namespace of this thread. */
export function tcpListeners(port: number): TcpListener[] {
  return ['tcp', 'tcp6'].flatMap((table) =>
    listening(`/proc/thread-self/net/${table}`).flatMap((row) => {
      const [address = '', ofPort = ''] = row[1]?.split(':') ?? [];
      if (Number.parseInt(ofPort, 16) !== port) return [];
      return { address: addressOf(address), uid: Number(row[7]), inode: row[9] ?? '' };
    }),
  );
}

const LISTEN = '0A';
const CHUNK_BYTES = 65_536;

/**
 * Returns the rows of the listening sockets in a table of /proc. The kernel lists them before all
 * connections.
 */
function listening(path: string): string[][] {
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch {
    // The file does not exist, because the kernel has no IPv6.
    return [];
  }
  try {
    const chunk = Buffer.alloc(CHUNK_BYTES);
    for (let text = ''; ; ) {
      const length = readSync(fd, chunk);
      text += chunk.toString('latin1', 0, length);
      const rows = text.split('\n').slice(1, -1).map(fieldsOf);
      const others = rows.findIndex((row) => row[3] !== LISTEN);
      if (length === 0 || others >= 0) return others < 0 ? rows : rows.slice(0, others);
    }
  } finally {
    closeSync(fd);
  }
}

/** The kernel prints an address as 32-bit words in host byte order. */
function addressOf(hex: string): string {
  const bytes = Buffer.from(hex, 'hex').swap32();
  const isMapped = bytes.length === 16 && bytes.readBigUInt64BE(0) === 0n && bytes.readUInt32BE(8) === 0xffff;
  if (bytes.length === 4 || isMapped) return [...bytes.subarray(-4)].join('.');
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(2 * at).toString(16));
  return groups
    .join(':')
    .replace(/^(0:){7}/, '::')
    .replace(/^::0$/, '::');
}

function fieldsOf(line: string): string[] {
  return line.trim().split(/\s+/);
}

/** Returns the fields of each row of a table in /proc, without its heading. */
function rowsOf(path: string): string[][] {
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n').slice(1);
  return lines.map(fieldsOf);
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
