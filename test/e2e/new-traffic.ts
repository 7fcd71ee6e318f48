import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Topology } from '#cli/tour/topology.js';

/**
 * Sends a lookup every 5 ms, in turn for the names of the command line, each from its own port as resolvers
 * do. Prints one JSON row for each when its input closes: when it was sent, how long the answer took, and its
 * code; -1 for none.
 */
const LOOKUPS = `
const { createSocket } = require('node:dgram');
const [address, ...names] = process.argv.slice(1);
const rows = [];
const encoded = (name) => Buffer.concat([...name.split('.').map((label) => Buffer.from([label.length, ...Buffer.from(label)])), Buffer.from([0, 0, 1, 0, 1])]);
const header = Buffer.from([0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
const timer = setInterval(() => {
  const name = names[rows.length % names.length];
  const row = { at: Date.now(), tookMs: 0, code: -1, name };
  rows.push(row);
  const socket = createSocket('udp4');
  const ended = (code) => {
    row.tookMs = Date.now() - row.at;
    row.code = code;
    socket.close();
  };
  socket.once('message', (answer) => ended(answer[3] & 15));
  socket.once('error', ({ code }) => ended(code));
  socket.connect(53, address, () => socket.send(Buffer.concat([header, encoded(name)])));
}, 5);
process.stdin.on('end', () => {
  clearInterval(timer);
  setTimeout(() => process.stdout.write(JSON.stringify(rows), () => process.exit(0)), 5000);
}).resume();
process.stderr.write('up');`;

/**
 * Opens a TLS connection every 20 ms, and prints one JSON row for each when its input closes: when it began,
 * how long the handshake took, and its end, \`open\` or a code.
 */
const HANDSHAKES = `
const { connect } = require('node:tls');
const [host, port, servername] = process.argv.slice(1);
const rows = [];
const timer = setInterval(() => {
  const row = { at: Date.now(), tookMs: 0, end: 'waits' };
  rows.push(row);
  const socket = connect({ host, port: Number(port), servername, rejectUnauthorized: false });
  const ended = (end) => {
    if (row.end !== 'waits') return;
    row.tookMs = Date.now() - row.at;
    row.end = end;
    socket.destroy();
  };
  socket.once('secureConnect', () => ended('open'));
  socket.once('error', ({ code }) => ended(code));
  socket.once('close', () => ended('closed'));
}, 20);
process.stdin.on('end', () => {
  clearInterval(timer);
  setTimeout(() => process.stdout.write(JSON.stringify(rows), () => process.exit(0)), 5000);
}).resume();
process.stderr.write('up');`;

/**
 * For each line of its input, opens one TLS connection and sends one lookup. Prints a line of JSON when both
 * have ended.
 */
const PAIRS = `
const { connect } = require('node:tls');
const { createSocket } = require('node:dgram');
const [host, port, servername, resolver, name] = process.argv.slice(1);
const encoded = Buffer.concat([...name.split('.').map((label) => Buffer.from([label.length, ...Buffer.from(label)])), Buffer.from([0, 0, 1, 0, 1])]);
const query = Buffer.concat([Buffer.from([0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]), encoded]);
const timed = async (act) => {
  const at = Date.now();
  const end = await new Promise(act);
  return { at, tookMs: Date.now() - at, end };
};
const handshake = (resolve) => {
  const socket = connect({ host, port: Number(port), servername, rejectUnauthorized: false });
  socket.once('secureConnect', () => resolve('open')).once('error', ({ code }) => resolve(code)).once('close', () => resolve('closed'));
  socket.once('secureConnect', () => socket.destroy());
};
const lookup = (resolve) => {
  const socket = createSocket('udp4');
  socket.once('message', (answer) => { resolve(answer[3] & 15); socket.close(); });
  socket.connect(53, resolver, () => socket.send(query));
};
process.stdin.on('data', async () => {
  const [connection, answer] = await Promise.all([timed(handshake), timed(lookup)]);
  process.stdout.write(JSON.stringify({ connection, answer }) + '\\n');
});
process.stderr.write('up');`;

/** \`at\`: the start, in ms since the epoch. \`code\`: the RCODE; -1 without an answer. */
export type Lookup = {
  readonly at: number;
  readonly tookMs: number;
  readonly code: number | string;
  readonly name: string;
};
export type Handshake = { readonly at: number; readonly tookMs: number; readonly end: string };

/** A client that opens lookups or connections at a steady rate. */
export type Stream<Row> = {
  /** Stops the client. Resolves with all rows, after at most five seconds for the last answers. */
  stop(): Promise<readonly Row[]>;
};

export const lookups = ({ client }: Topology, address: string, ...names: string[]): Promise<Stream<Lookup>> =>
  streamOf(client.start(process.execPath, ['-e', LOOKUPS, address, ...names]));

export const handshakes = ({ client }: Topology, ...to: readonly string[]): Promise<Stream<Handshake>> =>
  streamOf(client.start(process.execPath, ['-e', HANDSHAKES, ...to]));

type Timed = { readonly tookMs: number; readonly end: number | string };
/** A client that opens one TLS connection and sends one lookup for each call of `send`. */
export type Pairs = { send(): Promise<{ readonly connection: Timed; readonly answer: Timed }>; stop(): void };

export async function pairs({ client }: Topology, ...to: readonly string[]): Promise<Pairs> {
  const child = client.start(process.execPath, ['-e', PAIRS, ...to]);
  if (child.stderr !== null) await once(child.stderr, 'data');
  child.stdout?.setEncoding('utf8');
  return {
    send: async () => {
      child.stdin?.write('\n');
      const [line] = child.stdout === null ? [] : ((await once(child.stdout, 'data')) as [string]);
      return JSON.parse(line ?? '') as Awaited<ReturnType<Pairs['send']>>;
    },
    stop: () => child.kill(),
  };
}

async function streamOf<Row>(child: ChildProcess): Promise<Stream<Row>> {
  let text = '';
  child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  if (child.stderr !== null) await once(child.stderr, 'data');
  return {
    stop: async () => {
      const ended = once(child, 'close');
      child.stdin?.end();
      await ended;
      return JSON.parse(text) as Row[];
    },
  };
}
