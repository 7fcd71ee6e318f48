import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { ADDRESSES, type Topology } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { helloOfNode } from '#test/service-plane/tls/recorded-hello.js';
import type { NodeRig } from './rig.js';
import { digestOf, TcpPeer } from './tcp-peer.js';

const MB = 1_000_000;
/** After this number of bytes, the datapath takes over a spliced connection. */
const ENOUGH = 4 * MB;

type Inside = Topology['client'];
export type Ends = { readonly client: TcpPeer; readonly server: TcpPeer };

/**
 * Controls client and server processes. Each pair has one connection, through the node, to `port` of the
 * server. The client first sends a recorded ClientHello.
 */
export class Talkers {
  readonly #talkers: TcpPeer[] = [];
  #ownPort = 20_000;

  private constructor(
    private readonly rig: Pick<NodeRig, 'topology'>,
    private readonly port: number,
    private readonly hello: { readonly file: string; readonly length: number },
  ) {}

  get helloFile(): string {
    return this.hello.file;
  }

  static async at(rig: Pick<NodeRig, 'node' | 'topology'>, port: number, servername = SERVER_NAME): Promise<Talkers> {
    const hello = Buffer.from(await helloOfNode({ servername }));
    const file = join(rig.node.folder, `hello-${port}`);
    await writeFile(file, hello);
    return new Talkers(rig, port, { file, length: hello.length });
  }

  /** Returns a client port that no earlier connection used. */
  nextPort = (): number => ++this.#ownPort;

  end = async (): Promise<void> => {
    await Promise.all(this.#talkers.splice(0).map((talker) => talker.end()));
  };

  /** Ends the earlier processes, and opens a connection. */
  connect = async (own?: number): Promise<Ends> => {
    await this.end();
    return this.#connect(own);
  };

  #connect = async (own = this.nextPort()): Promise<Ends> => {
    const client = this.#talker(this.rig.topology.client);
    const server = this.#talker(this.rig.topology.server);
    await server.must('listen', this.port);
    const dialled = client.must('dial', ADDRESSES.server, this.port, own, this.hello.file);
    await server.must('accept');
    await dialled;
    await server.must('take', this.hello.length);
    await server.must('greet');
    await client.must('greeted');
    return { client, server };
  };

  /**
   * Opens a connection, sends 4 MB to the server, and waits until the datapath has taken over the connection.
   */
  offloaded = async (own?: number): Promise<Ends> => {
    await this.end();
    return this.anotherOffloaded(own);
  };

  /** Opens a connection like `offloaded`, beside the earlier connections. */
  anotherOffloaded = async (own?: number): Promise<Ends> => {
    const ends = await this.#connect(own);
    await transfer(ends.client, ends.server, ENOUGH, 3);
    await expect.poll(this.isOffloaded).toBe(true);
    return ends;
  };

  /** Returns true if the datapath has taken over all connections: the node then has no socket for `port`. */
  isOffloaded = async (): Promise<boolean> => {
    const ours = `( sport = :${this.port} or dport = :${this.port} )`;
    const { node } = this.rig.topology;
    return (await node.must('ss', '-Htn', 'state', 'connected', 'exclude', 'time-wait', ours)) === '';
  };

  #talker(inside: Inside): TcpPeer {
    const made = new TcpPeer(inside.start('/usr/bin/python3', ['-u', ...TcpPeer.words]));
    this.#talkers.push(made);
    return made;
  }
}

/** Sends `count` bytes from one end to the other, and checks that the bytes arrive unchanged. */
export async function transfer(from: TcpPeer, to: TcpPeer, count: number, seed: number): Promise<void> {
  const sent = from.must('send', count, seed);
  expect(await to.must('take', count)).toEqual({ took: count, digest: digestOf(count, seed), end: 'open' });
  await sent;
}

export async function transferBoth({ client, server }: Ends, count: number): Promise<void> {
  // Each end executes one command at a time, so the test sends in one direction after the other.
  await transfer(client, server, count, 1);
  await transfer(server, client, count, 2);
}
