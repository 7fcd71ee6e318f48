import { duplexPair } from 'node:stream';
import { type ConnectionOptions, connect, type SecureContext, TLSSocket } from 'node:tls';

/**
 * Makes a TLS connection inside the process, and returns both TLS sockets after the client has verified the
 * server certificate. Rejects with the client's error if the handshake fails.
 */
export async function handshake(
  secureContext: SecureContext,
  options: ConnectionOptions,
): Promise<{ readonly client: TLSSocket; readonly server: TLSSocket; readonly close: () => void }> {
  const [near, far] = duplexPair();
  const server = new TLSSocket(far, { isServer: true, secureContext });
  server.on('error', () => {});
  const close = () => {
    client.destroy();
    server.destroy();
    near.destroy();
    far.destroy();
  };
  const client = connect({ ...options, socket: near });
  try {
    await new Promise<void>((resolve, reject) => client.once('secureConnect', resolve).on('error', reject));
  } catch (failure) {
    close();
    throw failure;
  }
  return { client, server, close };
}
