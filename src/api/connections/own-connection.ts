import type { Socket } from 'node:net';

type Ends = { readonly [end in 'remoteAddress' | 'localAddress']?: Socket[end] | undefined };

/**
 * Returns true if the client of a connection is a process of this node, such as its kubelet: the client has a
 * loopback address, or the address to which it connects. Returns false after the connection has ended,
 * because Node.js then returns no addresses.
 */
export function isOwnConnection({ remoteAddress = '', localAddress }: Ends): boolean {
  return remoteAddress === localAddress || remoteAddress === '::1' || /^(::ffff:)?127\./.test(remoteAddress);
}
