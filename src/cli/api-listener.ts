import { processOfSocket, type TcpListener, tcpListeners } from '#libc/proc-sockets.js';
import { CliError } from './command-error.js';

/** Any local user can listen on a port of 1024 or above, while no node does. */
const ROOT = 0;

/** The file of a token, and the user id of its owner. */
export type TokenFile = { readonly path: string; readonly uid: number };

/**
 * Throws if a process of another user listens at `server`, which is a loopback address. Root, this user and
 * the owner of the token file may listen there. Returns false if no socket listens there.
 */
export function checkListener(server: URL, token: TokenFile): boolean {
  const all = tcpListeners(Number(server.port || 80));
  const reached = addressesOf(server.hostname).flatMap((address) => mostSpecific(all, address) ?? []);
  const trusted = [ROOT, process.getuid?.(), token.uid];
  const other = reached.find(({ uid }) => !trusted.includes(uid));
  if (other !== undefined) throw otherListener(server, token, other);
  return reached.length > 0;
}

/** The error for a connection that a socket accepts of which /proc/net/tcp has no row. */
export function unknownListener(server: URL, { path }: TokenFile): CliError {
  const message = `no socket of this network namespace listens at ${server.host}, but a server answers: the token in ${path} was not sent`;
  return new CliError(message, { code: 'other_listener', fix: FIX });
}

const FIX = 'give the token by WEIR_TOKEN if you trust the server, or use https';

function otherListener({ host }: URL, { path }: TokenFile, { uid, inode }: TcpListener): CliError {
  const process = processOfSocket(inode);
  const name = process === undefined ? 'a process' : `process ${process.pid} (${process.command})`;
  const message = `${name} of user ${uid} listens at ${host}, and not root, this user or the owner of ${path}: the token was not sent`;
  return new CliError(message, { code: 'other_listener', fix: `end that process, or ${FIX}` });
}

function addressesOf(hostname: string): string[] {
  return hostname === 'localhost' ? ['127.0.0.1', '::1'] : [hostname.replace(/^\[|\]$/g, '')];
}

/** Returns the listener that gets a connection to an address, as the kernel chooses it. */
function mostSpecific(listeners: readonly TcpListener[], address: string): TcpListener | undefined {
  const any = address.includes(':') ? ['::'] : ['0.0.0.0', '::'];
  for (const bound of [address, ...any]) {
    const found = listeners.find((listener) => listener.address === bound);
    if (found !== undefined) return found;
  }
  return undefined;
}
