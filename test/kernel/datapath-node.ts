import { firstLine, program } from '#cli/tour/node-process.js';
import { createTopology, type Topology } from '#cli/tour/topology.js';
import type { Adoption } from '#contracts/datapath/datapath.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { Program } from '#contracts/policy/program.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { datapathOptions } from './datapath-options.js';
import { enterNamespace } from './namespace.js';

type Host = 'client' | 'server';

/**
 * A node between a client and a server, with a datapath. This thread is in the network namespace of the node.
 */
export class DatapathNode {
  readonly #leave: () => void;
  #datapath: LocalDatapath | undefined;
  #adoption: Adoption | undefined;
  #generation = 0;

  constructor(readonly topology: Topology) {
    this.#leave = enterNamespace(topology.node.name);
  }

  static async create(tag: string): Promise<DatapathNode> {
    return new DatapathNode(await createTopology(tag));
  }

  /** Starts an echo server for TCP and UDP at these ports of the client and of the server. */
  async serve(...ports: readonly number[]): Promise<void> {
    const words = [program('tour-traffic'), 'serve', ...ports.map(String)];
    for (const host of ['client', 'server'] as const)
      await firstLine(this.topology[host].start(process.execPath, words));
  }

  /** Removes the server's route to the client, so that it can reply only to an address of the node. */
  async removeReturnRoute(): Promise<void> {
    await this.topology.server.must('ip', 'route', 'del', 'default');
  }

  get datapath(): LocalDatapath {
    if (this.#datapath === undefined) throw new Error('there is no datapath');
    return this.#datapath;
  }

  /** The result of the last `open`. */
  get adoption(): Adoption {
    if (this.#adoption === undefined) throw new Error('there is no datapath');
    return this.#adoption;
  }

  open(more: Partial<DatapathOptions>): LocalDatapath {
    this.#datapath = new LocalDatapath(datapathOptions(this.topology.pinPath, more));
    this.#adoption = this.#datapath.open();
    this.#datapath.attach();
    return this.#datapath;
  }

  enforce(policed: Program): void {
    this.datapath.stage(policed, ++this.#generation);
    this.datapath.flip();
  }

  /** Sends one message to an echo server. Returns the lines that `tour-traffic` prints. */
  async ask(from: Host, how: 'connect' | 'datagram', to: string, port: number, timeoutMs = 900): Promise<string[]> {
    const words = [program('tour-traffic'), how, to, String(port), '--timeout', String(timeoutMs)];
    return (await this.topology[from].run(process.execPath, ...words)).stdout.trim().split('\n');
  }

  /** Ends the datapath, and removes its programs from the hooks. */
  detach(): void {
    this.#datapath?.close();
    this.#datapath = undefined;
    detach(this.topology.pinPath);
  }

  /** Moves this thread back to the network namespace of the test process. */
  leave(): void {
    this.#leave();
  }

  async remove(): Promise<void> {
    this.leave();
    await this.topology.remove();
  }
}
