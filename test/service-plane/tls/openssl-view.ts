import { type SecureContext, TLSSocket } from 'node:tls';
import { memoryPair } from './memory-pair.js';

const HANDSHAKE = 22;

/**
 * Returns the server name that a TLS server of OpenSSL reads from a ClientHello. Returns null if the
 * ClientHello has no server name, and undefined if OpenSSL rejects the bytes.
 */
export async function serverNameByOpenssl(
  context: SecureContext,
  bytes: Uint8Array,
): Promise<string | null | undefined> {
  const [near, far] = memoryPair();
  return new Promise((resolve) => {
    const end = (name: string | null | undefined): void => {
      resolve(name);
      near.destroy();
      socket.destroy();
    };
    const socket = new TLSSocket(far, {
      isServer: true,
      secureContext: context,
      SNICallback: (name) => end(name),
    });
    socket.on('error', () => end(undefined)).on('close', () => end(undefined));
    near.on('data', (answer: Buffer) => end(answer[0] === HANDSHAKE ? null : undefined)).on('error', () => {});
    near.write(bytes);
    near.end();
  });
}
