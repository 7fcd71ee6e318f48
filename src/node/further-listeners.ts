import type { AddressInfo, Socket } from 'node:net';
import type { Logger } from 'pino';
import type { Api } from '#api/api.js';
import { isOwnConnection } from '#api/connections/own-connection.js';
import type { Management } from '#api/management.js';
import { createApi } from '#api/server.js';
import type { PeerCertificate } from '#cluster/peers/peer-certificate.js';
import type { PeerIdentity } from '#cluster/peers/peer-identity.js';
import type { Config } from '#config/config.js';
import { MAX_BYTES, readBoundedSync } from '#files/bounded-file.js';
import { connectionLimit } from '#sockets/listening/connection-limit.js';
import { listen } from './listen.js';

/**
 * The maximum number of connections from the node itself, such as probes of its kubelet, and from remote
 * clients. The two limits are independent.
 */
const CONNECTIONS = { own: 500, remote: 128 } as const;
const CONNECTIONS_OF_A_REMOTE_SOURCE = 32;
const REQUESTS_PER_SECOND = 20;

type Peer = NonNullable<Config['cluster']>['peer'];

/** Makes the peer listener, to which the other nodes of the cluster connect. It does not listen yet. */
export async function createPeerListener(
  management: Management,
  certificate: PeerCertificate,
  { listen, advertise }: Peer,
  { version, logger }: { readonly version: string; readonly logger: Logger },
): Promise<Api> {
  const listener = await createApi(management, {
    version,
    logger,
    hosts: [listen.host, advertise.host],
    tls: certificate.present,
    listener: 'peers',
  });
  const { server } = listener as unknown as { readonly server: { setSecureContext(options: object): void } };
  const renewing = certificate.identity.subscribe(({ ca, ...own }: PeerIdentity) => {
    server.setSecureContext({ ...own, ...(ca === null ? {} : { ca }), minVersion: 'TLSv1.3' });
  });
  listener.addHook('onClose', async () => renewing.unsubscribe());
  return listener;
}

/**
 * Makes the metrics listener, which listens as soon as its address is free. Logs a failure and returns null;
 * the node then runs without this listener.
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
      limits: { connections: CONNECTIONS.own + CONNECTIONS.remote, requestsPerWindow: REQUESTS_PER_SECOND },
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
    log.error({ err: failure }, 'the metrics listener cannot be created');
    return null;
  }
}

/**
 * Returns a function that tells whether the metrics listener must close a new connection at once, because its
 * limit is reached.
 */
export function limitConnections(): (connection: Socket) => boolean {
  const open = { own: 0, remote: 0 };
  const refuses = {
    own: connectionLimit(() => CONNECTIONS.own, 'api'),
    remote: connectionLimit(() => CONNECTIONS_OF_A_REMOTE_SOURCE, 'connection'),
  };
  return (connection) => {
    const kind = isOwnConnection(connection) ? 'own' : 'remote';
    if (open[kind] >= CONNECTIONS[kind] || refuses[kind](connection)) return true;
    open[kind]++;
    connection.once('close', () => open[kind]--);
    return false;
  };
}

const pemIn = (path: string): Buffer => readBoundedSync(path, MAX_BYTES.certificates);
