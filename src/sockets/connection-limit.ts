import type { Socket } from 'node:net';
import { descriptorOf, isReserved } from './descriptor-reserve.js';
import { SourceCounts } from './source-counts.js';

/**
 * Returns a function that returns true if the caller must close a new connection: its source already has
 * `perSource()` open connections, or its descriptor is reserved (`isReserved`). An accepted connection counts
 * for its source until the connection is closed.
 */
export function connectionLimit(perSource: () => number, use: 'api' | 'connection'): (connection: Socket) => boolean {
  const open = new SourceCounts<string>();
  return (connection) => {
    const source = connection.remoteAddress ?? '';
    if (open.of(source) >= perSource() || isReserved(descriptorOf(connection), use)) return true;
    open.add(source);
    connection.once('close', () => open.remove(source));
    return false;
  };
}
