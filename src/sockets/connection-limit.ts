import type { Socket } from 'node:net';
import { descriptorOf, isReserved } from './descriptor-reserve.js';
import { SourceCounts } from './source-counts.js';

/**
 * Returns a function that decides whether a new connection must be closed: its source already has `perSource`
 * open connections, or its descriptor belongs to the reserve. An accepted connection counts until it is
 * closed.
 */
export function connectionLimit(perSource: number, use: 'api' | 'connection'): (connection: Socket) => boolean {
  const open = new SourceCounts<string>();
  return (connection) => {
    const source = connection.remoteAddress ?? '';
    if (open.of(source) >= perSource || isReserved(descriptorOf(connection), use)) return true;
    open.add(source);
    connection.once('close', () => open.remove(source));
    return false;
  };
}
