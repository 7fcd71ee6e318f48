import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { ADDRESSES } from '#cli/tour/topology.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { clockMs, FIRST_PROBE_PORT, PROBE_PORTS, type ProbeInput, type ProbeTick } from './probe-flows.js';

/**
 * Sends one datagram to each probe port through each node every `EVERY_MS`, always by the same flows, and
 * receives and echoes them. Posts all ticks after the message `end`.
 */
const EVERY_MS = 20;
const CLIENT_PORT = 6_000;
/** The longest time from the sending of a datagram to its arrival, in milliseconds. */
const LATE_MS = 500;
const RECEIVE_BYTES = 1 << 20;

type Tick = { from: number; to: number; allowed: number };
type Probed = { readonly node: string; readonly sender: Socket; readonly ticks: Tick[] };

/** Returns a socket in the present namespace of this thread. */
async function bound(port: number): Promise<Socket> {
  const socket = createSocket({ type: 'udp4', recvBufferSize: RECEIVE_BYTES });
  socket.on('error', () => {});
  socket.bind({ port, exclusive: true });
  await once(socket, 'listening');
  return socket;
}

async function open({ node, client, server }: ProbeInput): Promise<Probed> {
  const ticks: Tick[] = [];
  const leaveServer = enterNamespace(server);
  for (let index = 0; index < PROBE_PORTS; index++) {
    const receiver = await bound(FIRST_PROBE_PORT + index);
    receiver.on('message', (message, { port, address }) => {
      const tick = ticks[message.readUInt32LE()];
      if (tick !== undefined) tick.allowed |= 1 << index;
      receiver.send(message, port, address, () => {});
    });
  }
  leaveServer();
  const leaveClient = enterNamespace(client);
  const sender = await bound(CLIENT_PORT);
  sender.on('message', () => {});
  leaveClient();
  return { node, sender, ticks };
}

function send({ sender, ticks }: Probed): void {
  const tick: Tick = { from: clockMs(), to: Number.POSITIVE_INFINITY, allowed: 0 };
  const message = Buffer.alloc(4);
  message.writeUInt32LE(ticks.push(tick) - 1);
  let pending = PROBE_PORTS;
  for (let index = 0; index < PROBE_PORTS; index++)
    sender.send(message, FIRST_PROBE_PORT + index, ADDRESSES.server, () => {
      pending -= 1;
      if (pending === 0) tick.to = clockMs();
    });
}

const port = parentPort;
if (port === null) throw new Error('the probes run in a worker thread');
const probed: Probed[] = [];
for (const each of workerData as readonly ProbeInput[]) probed.push(await open(each));
const timer = setInterval(() => {
  for (const each of probed) send(each);
}, EVERY_MS);
port.once('message', async () => {
  clearInterval(timer);
  await pause(LATE_MS);
  port.postMessage(probed.flatMap(({ node, ticks }) => ticks.map((tick): ProbeTick => ({ node, ...tick }))));
  process.exit(0);
});
port.postMessage('ready');
