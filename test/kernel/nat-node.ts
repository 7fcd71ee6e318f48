import { expect } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { natBit } from '#dataplane/abi/settings.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { flushConntrack } from './conntrack.js';
import { datapathOptions } from './datapath-options.js';
import { enterNamespace } from './namespace.js';
import { frameOf, NODE_MAC, type SentPacket, textOf } from './nat-frames.js';
import { Wire } from './wire.js';

const MARK_MASK = 0x00f0_0000;
/** nftables commands that create only chains for NAT. */
export const NAT_CHAINS = `add table ip mine
delete table ip mine
add table ip mine
add chain ip mine pre { type nat hook prerouting priority -100; }
add chain ip mine post { type nat hook postrouting priority 100; }`;
export const CHAINS = `${NAT_CHAINS}
add chain ip mine raw { type filter hook prerouting priority -300; }
add chain ip mine after { type filter hook forward priority 0; }
add counter ip mine left
add rule ip mine after meta mark & 0x00f00000 == ${natBit(MARK_MASK)} counter name left`;

/** Milliseconds to wait for a packet or a counter. Only a test that fails waits as long. */
const TIMEOUT_MS = 3_000;

type Host = 'client' | 'server';

/** A second address in the network of the server. Frames to it reach the server. */
export const ROUTER = '10.77.2.9';

/** Returns a policy that lets one source open connections to these addresses and ports only. */
export function only(source: string, ...to: readonly (readonly [string, number])[]): Program {
  const rules = to.map(([address, port], index) => rule({ id: `r${index}`, to: [address], ports: [String(port)] }));
  return compile(policy([group([source], rules)]));
}

/**
 * A node that translates addresses, between a client and a server that only send and receive frames. The
 * hosts answer ARP requests, and drop each packet that they receive. `textOf` describes a received packet.
 */
export class NatNode {
  #datapath: LocalDatapath | undefined;
  #options: Partial<DatapathOptions> | undefined;
  #generation = 0;

  private constructor(
    readonly topology: Topology,
    readonly wires: Readonly<Record<Host, Wire>>,
    readonly leave: () => void,
  ) {}

  static async create(tag: string): Promise<NatNode> {
    const topology = await createTopology(tag);
    const { node, server } = topology;
    // The server has no route to the client: it can reply only to an address of the node.
    await server.must('ip', 'route', 'del', 'default');
    for (const name of ['lan0', 'wan0']) await node.must('ip', 'link', 'set', name, 'address', NODE_MAC);
    const leave = enterNamespace(node.name);
    const wireOf = async (host: Host, device: string, ...addresses: readonly string[]): Promise<Wire> => {
      const space = topology[host];
      await space.must(
        'nft',
        'add table ip quiet; add chain ip quiet in { type filter hook input priority 0; policy drop; }',
      );
      const link = await space.must('ip', '-o', 'link', 'show', 'dev', 'eth0');
      const [, index = '', mac = ''] = /^(\d+):.* link\/ether (\S+)/.exec(link) ?? [];
      // The first packet to a host would otherwise wait for an answer to an ARP request.
      for (const found of addresses) await node.must('ip', 'neigh', 'replace', found, 'lladdr', mac, 'dev', device);
      return new Wire(space.name, Number(index));
    };
    // Conntrack may be a module that no rule has loaded yet.
    await node.run('modprobe', 'nf_conntrack');
    await node.must('sh', '-c', 'echo 1 > /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal');
    const wires = {
      client: await wireOf('client', 'lan0', ADDRESSES.client, ADDRESSES.clientOther),
      server: await wireOf('server', 'wan0', ADDRESSES.server, ROUTER),
    };
    return new NatNode(topology, wires, leave);
  }

  async remove(): Promise<void> {
    this.detach();
    for (const wire of Object.values(this.wires)) wire.close();
    this.leave();
    await this.topology.remove();
  }

  /** Replaces the node's rules for NAT. */
  async translate(...rules: readonly string[]): Promise<void> {
    await this.topology.node.must('nft', [CHAINS, ...rules].join('\n'));
  }

  /** Begins a test: replaces the rules for NAT, and forgets the connections and packets of the last test. */
  async begin(...rules: readonly string[]): Promise<void> {
    flushConntrack();
    for (const wire of Object.values(this.wires)) wire.seen();
    await this.translate(...rules);
  }

  get isOpen(): boolean {
    return this.#datapath !== undefined;
  }

  get datapath(): LocalDatapath {
    if (this.#datapath === undefined) throw new Error('there is no datapath');
    return this.#datapath;
  }

  /** Puts a policy in force. Opens another datapath only if the options differ, because that takes longer. */
  police(policed: Program, more: Partial<DatapathOptions> = {}): void {
    const options = { interfaces: ['lan0', 'wan0'], ...more };
    if (JSON.stringify(options) !== JSON.stringify(this.#options)) {
      this.detach();
      this.open(options);
    }
    this.enforce(policed);
  }

  /** Closes the datapath, and opens and attaches another one in its place. */
  open(more: Partial<DatapathOptions>): void {
    this.#options = { interfaces: ['lan0', 'wan0'], ...more };
    this.#datapath?.close();
    this.#datapath = new LocalDatapath(datapathOptions(this.topology.pinPath, this.#options));
    this.#datapath.open();
    this.#datapath.attach();
  }

  enforce(policed: Program): void {
    this.datapath.stage(policed, ++this.#generation);
    this.datapath.flip();
  }

  /** Ends the process of the datapath. The kernel still enforces the last policy. */
  close(): void {
    this.#datapath?.close();
    this.#datapath = undefined;
    this.#options = undefined;
  }

  detach(): void {
    this.close();
    detach(this.topology.pinPath);
  }

  /** Sends packets from a host to the node. */
  send(from: Host, ...packets: readonly SentPacket[]): void {
    for (const packet of packets) this.wires[from].send(frameOf(packet));
  }

  /** Returns the packets that a host has received since the last call. */
  received(at: Host): string[] {
    return this.wires[at].seen().flatMap((frame) => textOf(frame) ?? []);
  }

  /**
   * Sends packets, waits until a host has received as many packets as `texts` has elements, and compares
   * them.
   */
  async passes(from: Host, packets: SentPacket | readonly SentPacket[], at: Host, ...texts: string[]): Promise<void> {
    this.send(from, ...[packets].flat());
    const all: string[] = [];
    const until = performance.now() + TIMEOUT_MS;
    do {
      all.push(...this.received(at));
      if (all.length < texts.length) await new Promise((resolve) => setTimeout(resolve, 2));
    } while (all.length < texts.length && performance.now() < until);
    expect(all).toEqual(texts);
  }

  /**
   * Sends a packet, or a datagram in fragments. Waits until it is dropped for this reason, and checks that no
   * host has received it.
   */
  async isDropped(from: Host, packets: SentPacket | readonly SentPacket[], reason: string): Promise<void> {
    const count = (): bigint => this.datapath.stats().drops[reason]?.packets ?? 0n;
    const before = count();
    this.send(from, ...[packets].flat());
    await expect.poll(count, { interval: 5 }).toBe(before + 1n);
    expect([...this.received('client'), ...this.received('server')]).toEqual([]);
  }

  /** Returns the number of packets that a named counter of the table `mine` has counted. */
  async count(name: string): Promise<number> {
    const text = await this.topology.node.must('nft', `list counter ip mine ${name}`);
    return Number(/packets (\d+)/.exec(text)?.[1]);
  }
}

const address = (text: string): number => {
  const parsed = parseIpv4Address(text);
  if (parsed === undefined) throw new Error(`no address: ${text}`);
  return parsed;
};

type End = readonly [address: string, port: number];

const packet = (protocol: number, [source, sourcePort]: End, [destination, destinationPort]: End): Packet<number> => ({
  source: address(source),
  destination: address(destination),
  protocol,
  sourcePort,
  destinationPort,
  icmpType: 0,
  icmpCode: 0,
});

export const udp = (from: End, to: End): SentPacket => ({ packet: packet(IPPROTO.udp, from, to) });
export const tcp = (from: End, to: End, tcpFlags: number): SentPacket => ({
  packet: packet(IPPROTO.tcp, from, to),
  options: { tcpFlags, payloadBytes: 0 },
});

/** An ICMP query (type 8) or its reply (type 0). */
export const echo = (from: string, to: string, icmpId: number, icmpType: 0 | 8 = 8): SentPacket => ({
  packet: { ...packet(IPPROTO.icmp, [from, 0], [to, 0]), icmpType },
  options: { icmpId },
});
