import { createSocket, type Socket } from 'node:dgram';
import { enterNamespace } from './namespace.js';

/** Returns a UDP socket in a network namespace that is bound to an address and a port. */
export async function boundSocket(namespace: string, host: string, port: number): Promise<Socket> {
  const back = enterNamespace(namespace);
  try {
    const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
    await new Promise<void>((resolve) => socket.bind(port, host, resolve));
    return socket;
  } finally {
    back();
  }
}
