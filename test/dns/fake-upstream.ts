import { createServer, isIPv6, type Server, type Socket } from 'node:net';
import { DgramAsPromised, type SocketAsPromised } from 'dgram-as-promised';
import { type Answer, decode, encode, type Packet, type Question, type StringAnswer } from 'dns-packet';
import { nowMs } from '#dns/clock.js';
import type { Endpoint } from '#dns/dns-options.js';
import { FrameReader, framed } from '#dns/wire/message/framing.js';
import { endpoint } from './loopback.js';
import { opened } from './opened.js';

/** A query that the fake resolver has received, with functions to send an answer. */
export type ReceivedQuery = {
  readonly bytes: Buffer;
  readonly packet: Packet;
  readonly question: Question;
  readonly at: number;
  /** The connection of a query over TCP. Null: the query came over UDP. */
  readonly stream: Socket | null;
  /** Sends `bytes` to the querier without a change. */
  readonly send: (bytes: Uint8Array) => void;
  /** Sends a response to the question, with the flags and records of `answer`. */
  readonly answer: (answer: Partial<Packet>) => void;
  /**
   * Sends a datagram to the querier from the socket `other`, so that the answer has a false source address or
   * port.
   */
  readonly sendFrom: (other: SocketAsPromised, bytes: Uint8Array) => Promise<number>;
};
type OnQuery = (received: ReceivedQuery) => void;

/** A fake DNS resolver over UDP and TCP. The test defines the reaction to a query in `onQuery`. */
export class FakeUpstream {
  readonly received: ReceivedQuery[] = [];
  readonly connections = new Set<Socket>();
  #udp: SocketAsPromised | null = null;
  #tcp: Server | null = null;

  private constructor(
    public onQuery: OnQuery,
    readonly at = endpoint(),
  ) {}

  static async start(onQuery: OnQuery, at?: Endpoint): Promise<FakeUpstream> {
    const upstream = new FakeUpstream(onQuery, at);
    await upstream.open();
    opened(() => upstream.close());
    return upstream;
  }

  /** The names in all received queries, in order of arrival. */
  get names(): readonly string[] {
    return this.received.map(({ question }) => question.name);
  }

  async open(): Promise<void> {
    const udp = DgramAsPromised.createSocket(isIPv6(this.at.host) ? 'udp6' : 'udp4');
    await udp.bind(this.at.port, this.at.host);
    this.#udp = udp;
    udp.socket.on('message', (bytes, { port, address }) => {
      const send = (response: Uint8Array): void => {
        // A send error is ignored: the kernel may have no route from the address of the fake resolver to the
        // client.
        void udp.send(response, port, address).catch(() => {});
      };
      this.#receive(bytes, null, send, (other, response) => other.send(response, port, address));
    });
    const tcp = createServer((socket) => this.#accept(socket));
    this.#tcp = tcp;
    await new Promise<void>((resolve) => tcp.listen(this.at.port, this.at.host, resolve));
  }

  async close(): Promise<void> {
    const [udp, tcp] = [this.#udp, this.#tcp];
    [this.#udp, this.#tcp] = [null, null];
    for (const socket of this.connections) socket.destroy();
    await udp?.close();
    if (tcp !== null) await new Promise((resolve) => tcp.close(resolve));
  }

  #accept(socket: Socket): void {
    this.connections.add(socket);
    socket.setNoDelay();
    socket.on('close', () => this.connections.delete(socket));
    socket.on('error', () => {});
    const frames = new FrameReader(65_535);
    const never = (): Promise<number> => Promise.reject(new Error('this came over TCP'));
    socket.on('data', (chunk) => {
      for (const frame of frames.push(chunk)) {
        this.#receive(Buffer.from(frame), socket, (bytes) => socket.write(framed(bytes)), never);
      }
    });
  }

  #receive(
    bytes: Buffer,
    stream: Socket | null,
    send: ReceivedQuery['send'],
    sendFrom: ReceivedQuery['sendFrom'],
  ): void {
    const packet = decode(bytes);
    const [question] = packet.questions ?? [];
    if (question === undefined) throw new Error('a query without a question');
    const answer = (given: Partial<Packet>): void => send(answerTo(packet, given));
    const received = { bytes, packet, question, at: nowMs(), stream, send, sendFrom, answer };
    this.received.push(received);
    this.onQuery(received);
  }
}

const RECURSIVE = 0x0180;

/** Encodes a response to a query. Adds `flags` to the flags QR, RD and RA; `flags` may contain an rcode. */
export function answerTo({ id, questions }: Packet, { flags = 0, ...rest }: Partial<Packet>): Buffer {
  return encode({ type: 'response', id: id ?? 0, questions: questions ?? [], ...rest, flags: RECURSIVE | flags });
}

export function a(name: string, data: string, ttl = 300): StringAnswer {
  return { type: 'A', name, data, ttl };
}

export function aaaa(name: string, data: string, ttl = 300): StringAnswer {
  return { type: 'AAAA', name, data, ttl };
}

export function cname(name: string, data: string, ttl = 300): Answer {
  return { type: 'CNAME', name, data, ttl };
}

/**
 * Returns an `onQuery` function that answers each A query with `address`, and other queries without records.
 */
export function alwaysAt(address: string, ttl = 300): OnQuery {
  return ({ question, answer }) => answer({ answers: question.type === 'A' ? [a(question.name, address, ttl)] : [] });
}
