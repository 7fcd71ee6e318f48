import { randomBytes } from 'node:crypto';
import { type IncomingMessage, request } from 'node:http';
import type { Socket } from 'node:net';

export type WebSocketClient = {
  /** The WebSocket subprotocol that the server chose. Undefined: no subprotocol. */
  readonly protocol: string | undefined;
  /** All WebSocket messages that the client has received so far, parsed from JSON. */
  readonly messages: readonly unknown[];
  readonly socket: Socket;
  /**
   * Resolves with the close code and reason of the server, or with null if the connection ended without a
   * close frame.
   */
  readonly closed: Promise<{ readonly code: number; readonly reason: string } | null>;
};

/**
 * A minimal WebSocket client for tests. The client reads continuously unless a test calls `socket.pause`. The
 * promise rejects if the server refuses the upgrade.
 */
export function openWebSocket(
  url: string,
  {
    token,
    protocol,
    headers = {},
  }: {
    readonly token: string | null;
    readonly protocol?: string;
    readonly headers?: Readonly<Record<string, string>>;
  },
): Promise<WebSocketClient> {
  return new Promise((resolve, reject) => {
    const asked = request(url, {
      agent: false,
      headers: {
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': randomBytes(16).toString('base64'),
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        ...(protocol === undefined ? {} : { 'sec-websocket-protocol': protocol }),
        ...headers,
      },
    });
    asked.once('response', (response) => {
      response.resume().once('close', () => reject(new Error(`refused with ${response.statusCode ?? 'nothing'}`)));
    });
    asked.once('error', reject);
    asked.once('upgrade', (response, socket, head) => resolve(reading(response, socket, head)));
    asked.end();
  });
}

const CLOSE = 8;
const NO_CODE = 1005;

function reading({ headers }: IncomingMessage, socket: Socket, head: Buffer): WebSocketClient {
  const messages: unknown[] = [];
  let pending = Buffer.alloc(0);
  const closed = new Promise<{ code: number; reason: string } | null>((resolve) => {
    const take = (bytes: Buffer): void => {
      pending = Buffer.concat([pending, bytes]);
      for (let frame = frameIn(pending); frame !== undefined; frame = frameIn(pending)) {
        pending = pending.subarray(frame.end);
        if (frame.opcode === CLOSE) {
          const code = frame.payload.length < 2 ? NO_CODE : frame.payload.readUInt16BE(0);
          resolve({ code, reason: frame.payload.toString('utf8', 2) });
          socket.destroy();
        } else messages.push(JSON.parse(frame.payload.toString('utf8')));
      }
    };
    socket.on('data', take);
    socket.on('error', () => socket.destroy());
    socket.once('close', () => resolve(null));
    take(head);
  });
  return { protocol: headers['sec-websocket-protocol'], messages, socket, closed };
}

/**
 * Parses the first WebSocket frame (RFC 6455, 5.2) in the received bytes. Undefined: the frame is
 * incomplete. Server frames have no mask.
 */
function frameIn(
  bytes: Buffer,
): { readonly opcode: number; readonly payload: Buffer; readonly end: number } | undefined {
  if (bytes.length < 2) return undefined;
  const short = bytes.readUInt8(1) & 0x7f;
  const from = short === 127 ? 10 : short === 126 ? 4 : 2;
  if (bytes.length < from) return undefined;
  const length = short === 127 ? Number(bytes.readBigUInt64BE(2)) : short === 126 ? bytes.readUInt16BE(2) : short;
  const end = from + length;
  if (bytes.length < end) return undefined;
  return { opcode: bytes.readUInt8(0) & 0x0f, payload: bytes.subarray(from, end), end };
}
