import { connect, isIPv6, type Socket } from 'node:net';
import { DgramAsPromised, type SocketAsPromised } from 'dgram-as-promised';
import { type Answer, type DecodedPacket, decode, encode, type Packet, type RecordType } from 'dns-packet';
import type { Endpoint } from '#dns/dns-options.js';
import { FrameReader, framed } from '#dns/wire/message/framing.js';

const TIMEOUT_MS = 4_000;
const RECURSION_DESIRED = 0x0100;

/** A DNS response as text: the rcode, then each record as `name TYPE data`. */
export type ResponseText = readonly string[];

export function responseText(packet: DecodedPacket): ResponseText {
  const { rcode, answers = [], authorities = [], additionals = [] } = packet as DecodedPacket & { rcode: string };
  const records = [...answers, ...authorities, ...additionals].filter(({ type }) => type !== 'OPT');
  return [rcode, ...records.map(wordsOf)];
}

function wordsOf(record: Answer): string {
  const data: unknown = 'data' in record ? record.data : '';
  const text = typeof data === 'string' ? data : JSON.stringify(data);
  return `${record.name} ${record.type} ${text}`;
}

export type Opt = Extract<Answer, { type: 'OPT' }>;

export function edns(given: Partial<Opt> = {}): Opt {
  const defaults = { type: 'OPT', name: '.', udpPayloadSize: 1_232, extendedRcode: 0, ednsVersion: 0, flags: 0 };
  return { ...defaults, flag_do: false, options: [], ...given } as Opt;
}

export function query(name: string, type: RecordType = 'A', given: Partial<Packet> = {}): Buffer {
  const { flags = RECURSION_DESIRED, ...rest } = given;
  const id = Math.floor(Math.random() * 65_536);
  return encode({ type: 'query', id, questions: [{ name, type, class: 'IN' }], ...rest, flags });
}

const loopbackFor = ({ host }: Endpoint): string => (isIPv6(host) ? '::1' : '127.0.0.1');

/** A UDP client that stores the received datagrams in order. */
export class UdpClient {
  readonly #received: Buffer[] = [];
  readonly #waiting: ((datagram: Buffer) => void)[] = [];
  private constructor(
    readonly socket: SocketAsPromised,
    private readonly to: Endpoint,
  ) {
    socket.socket.on('message', (datagram) => {
      const waiting = this.#waiting.shift();
      if (waiting === undefined) this.#received.push(datagram);
      else waiting(datagram);
    });
  }

  static async at(to: Endpoint, from = loopbackFor(to)): Promise<UdpClient> {
    const socket = DgramAsPromised.createSocket(isIPv6(to.host) ? 'udp6' : 'udp4');
    await socket.bind(0, from);
    return new UdpClient(socket, to);
  }

  send(datagram: Uint8Array): void {
    void this.socket.send(datagram, this.to.port, this.to.host);
  }

  async receive(): Promise<Buffer> {
    const received = this.#received.shift();
    if (received !== undefined) return received;
    return new Promise((resolve, reject) => {
      const timeout = setTimeout(() => reject(new Error('nothing came')), TIMEOUT_MS);
      this.#waiting.push((datagram) => {
        clearTimeout(timeout);
        resolve(datagram);
      });
    });
  }

  close(): void {
    this.socket.destroy();
  }
}

/** Sends a datagram to `to` from a new UDP port. Resolves with the response. */
export async function exchange(to: Endpoint, datagram: Uint8Array, from?: string): Promise<Buffer> {
  const client = await UdpClient.at(to, from);
  try {
    client.send(datagram);
    return await client.receive();
  } finally {
    client.close();
  }
}

export async function lookUp(
  to: Endpoint,
  name: string,
  type: RecordType = 'A',
  given: Partial<Packet> = {},
): Promise<ResponseText> {
  return responseText(decode(await exchange(to, query(name, type, given))));
}

/** A client for DNS over TCP. It splits the received bytes into DNS messages. */
export class TcpClient {
  readonly received: Buffer[] = [];
  isClosed = false;
  readonly #frames = new FrameReader(65_535);
  private constructor(readonly socket: Socket) {
    socket.setNoDelay();
    socket.on('error', () => {});
    for (const event of ['end', 'close']) {
      socket.on(event, () => {
        this.isClosed = true;
      });
    }
    socket.on('data', (chunk) => {
      for (const frame of this.#frames.push(chunk)) this.received.push(Buffer.from(frame));
    });
  }

  static async to(at: Endpoint, from = loopbackFor(at)): Promise<TcpClient> {
    const { host, port } = at;
    const socket = connect({ host, port, localAddress: from, allowHalfOpen: true });
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    return new TcpClient(socket);
  }

  send(...messages: readonly Uint8Array[]): void {
    this.socket.write(Buffer.concat(messages.map(framed)));
  }

  /** The received responses as text, in order of arrival. */
  get responses(): readonly ResponseText[] {
    return this.received.map((message) => responseText(decode(message)));
  }

  close(): void {
    this.socket.destroy();
  }
}
