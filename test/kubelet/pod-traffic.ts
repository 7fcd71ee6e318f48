import type { Socket } from 'node:dgram';
import { createServer, type Server } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { boundSocket } from '#test/kernel/bound-socket.js';
import { enterNamespace } from '#test/kernel/namespace.js';

const SERVER = '10.9.0.2';
const [UDP_PORT, TCP_PORT] = [9_000, 9_001];
const RECEIVE_BUFFER = 4 << 20;
/**
 * Sends a datagram with its number and time each 10 ms, and the lines of one TCP connection, which it opens
 * again after its end.
 */
const CLIENT = `
const [udp, server] = [require('node:dgram').createSocket('udp4'), '${SERVER}'];
let [number, tcp] = [0, null];
udp.on('error', () => {});
const open = () => {
  tcp = require('node:net').connect(${TCP_PORT}, server);
  tcp.on('error', () => {}).once('close', () => setTimeout(open, 100)).resume();
};
open();
setInterval(() => {
  number++;
  udp.send(number + ' ' + Date.now(), ${UDP_PORT}, server);
  if (tcp.readyState === 'open') tcp.write(number + '\\n');
}, 10);`;

/** A pod that sends datagrams to the server outside of the cluster. */
export const clientPod = (name: string, labels: Readonly<Record<string, string>>, image: string) => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, labels },
  spec: {
    terminationGracePeriodSeconds: 0,
    automountServiceAccountToken: false,
    containers: [{ name: 'client', image, imagePullPolicy: 'Never', command: ['/usr/bin/node', '-e', CLIENT] }],
  },
});

type Arrival = { readonly number: number; readonly sentAt: number };
type Seen = { readonly received: number; readonly lost: number };

/** The server outside of the cluster, in this process. It keeps each datagram and each TCP connection. */
export class PodTraffic {
  readonly #arrivals = new Map<string, Arrival[]>();
  readonly #connections = new Map<string, number>();
  readonly #lines = new Map<string, number>();

  private constructor(
    readonly udp: Socket,
    readonly tcp: Server,
  ) {
    udp.setRecvBufferSize(RECEIVE_BUFFER);
    udp.on('message', (text, { address }) => {
      const arrivals = this.#arrivals.get(address) ?? [];
      const [number = 0, sentAt = 0] = text.toString().split(' ').map(Number);
      arrivals.push({ number, sentAt });
      this.#arrivals.set(address, arrivals);
    });
    tcp.on('connection', (socket) => {
      const address = socket.remoteAddress ?? '';
      this.#connections.set(address, this.connections(address) + 1);
      socket.on('error', () => socket.destroy());
      socket.on('data', () => this.#lines.set(address, Date.now()));
    });
  }

  static async listen(): Promise<PodTraffic> {
    const udp = await boundSocket('outside', SERVER, UDP_PORT);
    const leave = enterNamespace('outside');
    try {
      const tcp = createServer();
      await new Promise<void>((resolve) => tcp.listen(TCP_PORT, SERVER, resolve));
      return new PodTraffic(udp, tcp);
    } finally {
      leave();
    }
  }

  /** The datagrams that a pod has sent since a time, and the numbers between them that are missing. */
  since(address: string, time: number): Seen {
    const numbers = (this.#arrivals.get(address) ?? [])
      .filter(({ sentAt }) => sentAt >= time)
      .map(({ number }) => number);
    if (numbers.length === 0) return { received: 0, lost: 0 };
    return { received: numbers.length, lost: Math.max(...numbers) - Math.min(...numbers) + 1 - numbers.length };
  }

  /** The time when a pod sent the last datagram that arrived. */
  last(address: string): number {
    return this.#arrivals.get(address)?.at(-1)?.sentAt ?? 0;
  }

  /** The number of TCP connections that a pod has opened. */
  connections(address: string): number {
    return this.#connections.get(address) ?? 0;
  }

  /** Whether datagrams of a pod arrive. */
  async passes(address: string): Promise<boolean> {
    const begin = Date.now();
    await pause(300);
    return this.since(address, begin).received > 0;
  }

  /** Whether lines of a pod arrive by TCP. */
  async talks(address: string): Promise<boolean> {
    const begin = Date.now();
    await pause(300);
    return (this.#lines.get(address) ?? 0) > begin;
  }

  close(): void {
    this.udp.close();
    this.tcp.close();
  }
}
