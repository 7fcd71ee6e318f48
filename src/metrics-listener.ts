import type { AddressInfo, Socket } from 'node:net';
import type { Logger } from 'pino';
import type { Api } from '#api/api.js';
import type { Management } from '#api/management.js';
import { createApi } from '#api/server.js';
import type { Config } from '#config/config.js';
import { MAX_BYTES, readBoundedSync } from '#files/bounded-file.js';
import { connectionLimit } from '#sockets/connection-limit.js';
import { listen } from './node-listen.js';

const REMOTE_CONNECTIONS = 128;
/** Connections of the node itself, such as probes of its kubelet. Remote clients cannot take them. */
const LOCAL_CONNECTIONS = 32;
const CONNECTIONS_OF_A_SOURCE = 32;
const REQUESTS_PER_SECOND = 20;

/**
 * Makes the metrics listener, and lets it listen as soon as its address is free. Returns null if it cannot be
 * made. A failure is logged, and stops no other part of the node.
 */
export async function openMetricsListener(
  management: Management,
  { at, tls }: { readonly at: NonNullable<Config['metrics']['listen']>; readonly tls: Config['metrics']['tls'] },
  { version, log, signal }: { readonly version: string; readonly log: Logger; readonly signal: AbortSignal },
): Promise<Api | null> {
  try {
    const server = await createApi(management, {
      version,
      logger: log,
      listener: 'metrics',
      refuses: limitConnections(),
      ...(tls === null ? {} : { tls: { cert: pemIn(tls.cert), key: pemIn(tls.key) } }),
      limits: { connections: REMOTE_CONNECTIONS + LOCAL_CONNECTIONS, requestsPerWindow: REQUESTS_PER_SECOND },
    });
    listen({ name: 'the metrics listener', server, at, sockets: null }, log, signal).then(
      () => {
        const { address, port } = (server.server.address() as AddressInfo | null) ?? {};
        if (port !== undefined) log.info({ address, port, tls: tls !== null }, 'the metrics listener listens');
      },
      (failure: unknown) => log.error({ err: failure, ...at }, 'the metrics listener cannot listen'),
    );
    return server;
  } catch (failure) {
    log.error({ err: failure }, 'the metrics listener cannot be made');
    return null;
  }
}

/** Returns a function that returns whether the metrics listener must close a new connection at once. */
export function limitConnections(): (connection: Socket) => boolean {
  const refusesLocal = connectionLimit(() => CONNECTIONS_OF_A_SOURCE, 'api');
  const refusesRemote = connectionLimit(() => CONNECTIONS_OF_A_SOURCE, 'connection');
  let remote = 0;
  return (connection) => {
    if (connection.remoteAddress === connection.localAddress) return refusesLocal(connection);
    if (remote >= REMOTE_CONNECTIONS || refusesRemote(connection)) return true;
    remote++;
    connection.once('close', () => remote--);
    return false;
  };
}

const pemIn = (path: string): Buffer => readBoundedSync(path, MAX_BYTES.certificates);
