import type { Socket } from 'node:dgram';
import { setTimeout as pause } from 'node:timers/promises';
import { decode, encode, RECURSION_DESIRED } from 'dns-packet';
import { ADDRESSES } from '#cli/tour/topology.js';
import { boundSocket } from '#test/kernel/bound-socket.js';

const CLIENT_PORT = 40_000;
const PROBE_MS = 120;
const LOOKUP_MS = 1_000;

/** A datagram that was sent from an address to a port of the server. */
export type Datagram = `${string} ${number}`;

/** One UDP socket of the client for each source address, and one of the server for each port. */
export class ChurnPackets {
  readonly #clients: ReadonlyMap<string, Socket>;
  readonly #servers: readonly Socket[];
  #probes = 0;
  #arrived = new Set<Datagram>();
  /** The functions that get the DNS responses, by query id. */
  readonly #lookups = new Map<number, (code: string) => void>();

  private constructor(clients: ReadonlyMap<string, Socket>, servers: readonly Socket[]) {
    this.#clients = clients;
    this.#servers = servers;
  }

  /** `sentinel` is called with the source, the port and the number of each datagram that `send` has sent. */
  static async open(
    namespaces: { readonly client: string; readonly server: string },
    from: readonly string[],
    ports: readonly number[],
    sentinel: (source: string, port: number, number: number) => void,
  ): Promise<ChurnPackets> {
    const clients = new Map<string, Socket>();
    for (const address of from) clients.set(address, await boundSocket(namespaces.client, address, CLIENT_PORT));
    const servers: Socket[] = [];
    for (const port of ports) servers.push(await boundSocket(namespaces.server, ADDRESSES.server, port));
    const packets = new ChurnPackets(clients, servers);
    for (const [index, socket] of servers.entries()) {
      const port = ports[index] ?? 0;
      socket.on('message', (text, { address }) => {
        const [kind, number] = text.toString().split(' ');
        if (kind === 'sentinel') sentinel(address, port, Number(number));
        else if (number === String(packets.#probes)) packets.#arrived.add(`${address} ${port}`);
      });
    }
    for (const socket of clients.values()) {
      socket.on('message', (bytes) => {
        const { id = 0, rcode } = decode(bytes) as { readonly id?: number; readonly rcode?: string };
        packets.#lookups.get(id)?.(rcode ?? 'none');
      });
    }
    return packets;
  }

  send(from: string, port: number, number: number): void {
    this.#clients.get(from)?.send(`sentinel ${number}`, port, ADDRESSES.server);
  }

  /** Sends one datagram from each address to each port. Returns those that arrive. */
  async probe(from: readonly string[], ports: readonly number[]): Promise<ReadonlySet<Datagram>> {
    this.#probes++;
    this.#arrived = new Set();
    for (const address of from) {
      for (const port of ports) this.#clients.get(address)?.send(`probe ${this.#probes}`, port, ADDRESSES.server);
      await pause(1);
    }
    await pause(PROBE_MS);
    return this.#arrived;
  }

  /** Sends a DNS query to the node. Returns the response code, or `none`. */
  async lookUp(from: string, name: string): Promise<string> {
    const id = this.#lookups.size === 0 ? 1 : Math.max(...this.#lookups.keys()) + 1;
    const query = encode({ type: 'query', id, flags: RECURSION_DESIRED, questions: [{ type: 'A', name }] });
    try {
      return await new Promise((resolve) => {
        this.#lookups.set(id, resolve);
        this.#clients.get(from)?.send(query, 53, ADDRESSES.nodeLan);
        setTimeout(() => resolve('none'), LOOKUP_MS);
      });
    } finally {
      this.#lookups.delete(id);
    }
  }

  close(): void {
    for (const socket of [...this.#clients.values(), ...this.#servers]) socket.close();
  }
}

type Flow = readonly [from: string, port: number];

/** Datagrams that are sent without a pause: the rights of their addresses never change. */
export class Sentinels {
  readonly #send: ChurnPackets['send'];
  readonly #allowed: Flow;
  readonly #denied: readonly Flow[];
  /** The round of each sent datagram of the allowed flow that has not arrived yet, by its number. */
  readonly #lost = new Map<number, string>();
  #sent = 0;
  #sending: Promise<void> = Promise.resolve();
  #isEnding = false;
  round = '';
  /** The datagrams that arrived although their source must not send. */
  passed: string[] = [];

  constructor(send: ChurnPackets['send'], allowed: Flow, denied: readonly Flow[]) {
    this.#send = send;
    this.#allowed = allowed;
    this.#denied = denied;
  }

  get sent(): number {
    return this.#sent;
  }

  /** The number of the allowed datagrams that were lost in each round. */
  get lost(): Readonly<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const round of this.#lost.values()) counts[round] = (counts[round] ?? 0) + 1;
    return counts;
  }

  received(source: string, port: number, number: number): void {
    const [address, allowedPort] = this.#allowed;
    if (source === address && port === allowedPort) this.#lost.delete(number);
    else this.passed.push(`${source} to ${port} during ${this.round}`);
  }

  begin(): void {
    this.#sending = this.#sendAll();
  }

  async end(): Promise<void> {
    this.#isEnding = true;
    await this.#sending;
    await pause(PROBE_MS);
  }

  async #sendAll(): Promise<void> {
    for (; !this.#isEnding; await pause(5)) {
      const number = ++this.#sent;
      this.#lost.set(number, this.round);
      for (const [from, port] of [this.#allowed, ...this.#denied]) this.#send(from, port, number);
    }
  }
}
