import { networkInterfaces } from 'node:os';
import { CliError } from '#cli/errors/command-error.js';
import { isLoopback } from '#config/value.js';
import { processOfSocket, type TcpListener, tcpListeners } from '#libc/proc/proc-sockets.js';

/**
 * The user id of root. The owner of a listener must be checked, because any local user can listen on a port
 * of 1024 or above while no node runs.
 */
const ROOT = 0;

/** The file of a token, and the user id of its owner. */
export type TokenFile = { readonly path: string; readonly uid: number };

/**
 * Throws if a process of another user listens at `server`, which is a loopback address. Root, this user and
 * the owner of the token file may listen there. Returns false if no socket listens there.
 */
export function checkListener(server: URL, token: TokenFile): boolean {
  const reached = listenersAt(server);
  const trusted = [ROOT, process.getuid?.(), token.uid];
  const other = reached.find(({ uid }) => !trusted.includes(uid));
  if (other !== undefined) throw otherListener(server, token, other);
  return reached.length > 0;
}

/** Returns the listening sockets in this network namespace that would accept a connection to `server`. */
export function listenersAt(server: URL): TcpListener[] {
  const all = tcpListeners(portOf(server));
  return addressesOf(server.hostname).flatMap((address) => mostSpecific(all, address) ?? []);
}

/** The error if /proc/net/tcp has no row for the socket that accepts the connection. */
export function unknownListener(server: URL, { path }: TokenFile): CliError {
  const message = `no socket of this network namespace listens at ${server.host}, but a server answers: the token in ${path} was not sent`;
  return new CliError(message, { code: 'other_listener', fix: FIX });
}

/**
 * The error for a response that does not come from a Weir node. The message contains the process that listens
 * at the server, if this user may see it.
 */
export function foreignAnswer(url: URL, cause?: unknown): CliError {
  const named = isOfThisMachine(url) ? listenersAt(url).map((listener) => nameOf(listener)) : [];
  const [name] = named;
  const message = `${url.href} did not answer as a Weir node${name === undefined ? '' : `: ${name} listens at ${url.host}`}`;
  const others = 'give the address of the node with --server, WEIR_SERVER or --config';
  const fix = name?.startsWith('a process')
    ? `\`ss -ltnp 'sport = :${portOf(url)}'\` as root shows the process; end it if it should not listen there, or ${others}`
    : name === undefined
      ? others
      : `end that process if it should not listen there, or ${others}`;
  return new CliError(message, { cause, code: 'not_weir', fix });
}

export function isOfThisMachine({ hostname }: URL): boolean {
  const host = hostname.replace(/^\[|\]$/g, '');
  const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return isLoopback(host) || own.some(({ address }) => address === host);
}

const portOf = ({ port, protocol }: URL): number => Number(port || (protocol === 'https:' ? 443 : 80));

function nameOf({ uid, inode }: TcpListener): string {
  const process = processOfSocket(inode);
  return `${process === undefined ? 'a process' : `process ${process.pid} (${process.command})`} of user ${uid}`;
}

const FIX = 'give the token by WEIR_TOKEN if you trust the server, or use https';

function otherListener({ host }: URL, { path }: TokenFile, listener: TcpListener): CliError {
  const message = `${nameOf(listener)} listens at ${host}, and not root, this user or the owner of ${path}: the token was not sent`;
  return new CliError(message, { code: 'other_listener', fix: `end that process, or ${FIX}` });
}

function addressesOf(hostname: string): string[] {
  return hostname === 'localhost' ? ['127.0.0.1', '::1'] : [hostname.replace(/^\[|\]$/g, '')];
}

/** Returns the listener to which the kernel gives a connection to an address. */
function mostSpecific(listeners: readonly TcpListener[], address: string): TcpListener | undefined {
  const any = address.includes(':') ? ['::'] : ['0.0.0.0', '::'];
  for (const bound of [address, ...any]) {
    const found = listeners.find((listener) => listener.address === bound);
    if (found !== undefined) return found;
  }
  return undefined;
}
