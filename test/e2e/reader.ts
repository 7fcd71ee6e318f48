import WebSocket from 'ws';
import type { NodeProcess } from '#cli/tour/node-process.js';

type Value = string | number | boolean | null | readonly string[] | Readonly<Record<string, number>>;
export type WiretapMessage = Readonly<Record<string, Value>> & { readonly type: string };

/** A client that reads the wiretap over a WebSocket. */
export type WiretapReader = {
  /** The messages that the client has received so far. */
  readonly messages: WiretapMessage[];
  readonly socket: WebSocket;
  /** Resolves with the WebSocket close code when the connection is closed. */
  readonly closed: Promise<number>;
};

export async function readWiretap(node: NodeProcess, query = ''): Promise<WiretapReader> {
  const url = `${node.url.replace(/^http/, 'ws')}/api/v1/wiretap/stream${query}`;
  const socket = new WebSocket(url, 'weir.wiretap.v1', { headers: { authorization: `Bearer ${await node.token()}` } });
  const messages: WiretapMessage[] = [];
  socket.on('message', (data: Buffer) => {
    const read = JSON.parse(data.toString('utf8')) as WiretapMessage | WiretapMessage[];
    messages.push(...[read].flat());
  });
  const closed = new Promise<number>((resolve) => socket.once('close', resolve));
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('error', reject);
  });
  return { messages, socket, closed };
}
