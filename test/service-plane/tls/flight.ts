import { type ConnectionOptions, connect, createServer, type TlsOptions } from 'node:tls';
import { memoryPair } from './memory-pair.js';

export type Recorded = { readonly flight: Buffer; readonly session: Buffer | undefined };

/**
 * Makes a TLS connection in memory. Records all bytes of the server until the client receives application
 * data, or until one side fails. `session`: the last TLS session that the client received.
 */
export async function recordFlight(serving: TlsOptions, asking: ConnectionOptions): Promise<Recorded> {
  const said: Buffer[] = [];
  const [near, far] = memoryPair((chunk) => said.push(chunk));
  const sessions = new Map<string, Buffer>();
  const server = createServer(serving, (socket) => socket.on('error', () => {}).pipe(socket));
  server.on('tlsClientError', () => {});
  server.on('newSession', (id, data, done) => {
    kept.set(id.toString('hex'), data);
    sessions.set(id.toString('hex'), data);
    done();
  });
  server.on('resumeSession', (id, done) => done(null, kept.get(id.toString('hex')) ?? null));
  server.emit('connection', far);
  const client = connect({ socket: near, rejectUnauthorized: false, ...asking });
  let session: Buffer | undefined;
  client.on('session', (given) => {
    session = given;
  });
  await new Promise<void>((resolve) => {
    client.on('error', () => resolve()).on('close', () => resolve());
    client.on('data', () => resolve());
    client.write('x');
  });
  client.destroy();
  far.destroy();
  return { flight: Buffer.concat(said), session };
}

/** TLS sessions by session id, for servers that resume sessions without tickets. */
const kept = new Map<string, Buffer>();
