import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ConnectionOptions, connect } from 'node:tls';
import { memoryPair } from './memory-pair.js';

/** Returns the first bytes that Node's TLS client sends: its ClientHello. */
export async function helloOfNode(options: ConnectionOptions): Promise<Buffer> {
  const [near, far] = memoryPair();
  const client = connect({ socket: near, ...options }).on('error', () => {});
  const [bytes] = (await once(far, 'data')) as [Buffer];
  client.destroy();
  far.destroy();
  return bytes;
}

/**
 * Returns the first bytes that a program sends to a Unix socket: its ClientHello. `args` receives the path of
 * the socket, and returns the program's arguments.
 */
export async function helloOfProgram(program: string, args: (path: string) => readonly string[]): Promise<Buffer> {
  const folder = mkdtempSync(join(tmpdir(), 'weir-hello-'));
  const path = join(folder, 'socket');
  const server = createServer().listen(path);
  await once(server, 'listening');
  const child = spawn(program, args(path), { stdio: ['pipe', 'ignore', 'ignore'] });
  const ended = once(child, 'close');
  try {
    const [socket] = (await Promise.race([once(server, 'connection'), failed(ended)])) as [Socket];
    const [bytes] = (await Promise.race([once(socket, 'data'), failed(ended)])) as [Buffer];
    socket.destroy();
    return bytes;
  } finally {
    child.kill();
    server.close();
    await ended;
    rmSync(folder, { recursive: true });
  }
}

async function failed(ended: Promise<unknown[]>): Promise<never> {
  const [code] = await ended;
  throw new Error(`ended with ${String(code)} before its hello`);
}
