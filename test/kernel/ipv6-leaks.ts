import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { createTopology, type Topology } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { IPPROTO, type Packet, type Policy } from '#contracts/policy/policy-model.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { samplesOf } from '#policy/proof/proof-sample.js';
import { icmpContent, MORE_FRAGMENTS, TCP } from '#test/dataplane/frame.js';
import { type Ipv6FrameOptions, NEXT, optionHeader, quoteOfIpv6, routingHeader } from '#test/dataplane/ipv6-frame.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { datapathOptions } from './datapath-options.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { ipv6Frame, ipv6Packet } from './ipv6-frames.js';
import { enterNamespace } from './namespace.js';
import { NODE_MAC } from './nat-frames.js';
import { ALLOWED, DENIED, defaultOnly } from './policies.js';
import { Wire } from './wire.js';

const [floodFile, successorFile] = ['flood-process.js', 'successor-process.js'].map((name) =>
  fileURLToPath(new URL(`../../dist/test/kernel/${name}`, import.meta.url)),
);
/** The source port of a flow that an earlier policy has allowed. */
const LIVE = 7_000;
/** Number of source ports, or ICMP identifiers, of each packet. */
const PORTS = 64;

/** The hop limit of the frames of a leak test. The server counts frames with this hop limit, or one less. */
const HOP_LIMIT = 77;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function framesOf(sourcePort: number): Uint8Array[] {
  const from = (source: string, given: Partial<Packet<bigint>>, options: Ipv6FrameOptions = {}): Uint8Array =>
    ipv6Frame(ipv6Packet(source, IPV6.server, { sourcePort, ...given }), {
      ...{ hopLimit: HOP_LIMIT, icmpId: sourcePort, id: sourcePort },
      ...options,
    });
  const [tcp, icmp] = [{ protocol: IPPROTO.tcp }, { protocol: IPPROTO.icmpv6 }];
  const sent = (given: Partial<Packet<bigint>>, options?: Ipv6FrameOptions): Uint8Array =>
    from(IPV6.client, { destinationPort: DENIED, ...given }, options);
  const unknown = ipv6Packet(IPV6.server, IPV6.client, { sourcePort: DENIED, destinationPort: sourcePort });
  return [
    sent({}),
    sent({ sourcePort: LIVE }),
    sent(tcp),
    sent(tcp, { tcpFlags: TCP.ack }),
    sent(tcp, { extensions: [optionHeader(NEXT.hopByHop), optionHeader(NEXT.destination)] }),
    sent(
      {},
      {
        fragment: MORE_FRAGMENTS,
        content: Uint8Array.of(0, 9, DENIED >> 8, DENIED & 255, 0, 24, 0, 0, ...new Uint8Array(8)),
      },
    ),
    sent({}, { fragment: 2, content: new Uint8Array(8) }),
    sent({}, { fragment: 0 }),
    sent({ ...icmp, icmpType: 128 }),
    sent({ ...icmp, icmpType: 2 }, { content: icmpContent(2, 0, quoteOfIpv6(unknown)) }),
    // No router forwards discovery, whatever its destination is.
    sent({ ...icmp, icmpType: 135 }, { hopLimit: 255, payloadBytes: 16 }),
    sent(
      { ...icmp, icmpType: 131 },
      { hopLimit: 1, extensions: [{ kind: NEXT.hopByHop, bytes: [0, 0, 5, 2, 0, 0, 1, 0] }] },
    ),
    sent({ protocol: 41 }),
    sent({ protocol: NEXT.esp }),
    ...['fd77:2::7', 'fe80::2', '::1', '::', '::ffff:10.0.0.1'].map((source) =>
      from(source, { destinationPort: ALLOWED }),
    ),
    sent({ destinationPort: ALLOWED }, { extensions: [routingHeader(0)] }),
  ];
}

/** Allows the client a port of the server by UDP and TCP, and a port that depends on `generation`. */
function allowed(generation: number, port = ALLOWED): Policy {
  const ports = [`${port}`, String(20_000 + (generation % 10_000))];
  return policy([
    group(
      [IPV6.client],
      [IPPROTO.udp, IPPROTO.tcp].map((protocol) => rule({ protocol, ports, to: [IPV6.server] })),
    ),
  ]);
}
/** Allows everything, also from sources that are forged. */
const everything = defaultOnly('allow');

/** A node that enforces IPv6, a client that sends denied packets, and a counter of those that arrive. */
export class Ipv6LeakTest {
  #flood: { readonly process: ChildProcess; readonly sent: Promise<string> } | undefined;
  #datapath: LocalDatapath;
  #generation = 100;
  #flowCapacity = 1_024;

  private constructor(
    readonly topology: Topology,
    readonly forwarding: 'stack' | 'direct',
    private readonly wire: Wire,
    private readonly ifindex: number,
    private readonly leave: () => void,
  ) {
    this.#datapath = new LocalDatapath(this.#options());
  }

  static async create(tag: string, forwarding: 'stack' | 'direct'): Promise<Ipv6LeakTest> {
    const topology = await createTopology(tag);
    const { client, node, server } = topology;
    await node.must('ip', 'link', 'set', 'lan0', 'address', NODE_MAC);
    await addIpv6(topology);
    await server.must(
      'nft',
      `table ip6 leak {
  counter leaked { }
  chain in { type filter hook prerouting priority -500; ip6 hoplimit { 0, ${HOP_LIMIT - 1}, ${HOP_LIMIT}, 254 } ip6 nexthdr != icmpv6 counter name leaked; ip6 hoplimit { ${HOP_LIMIT - 1}, ${HOP_LIMIT}, 254 } ip6 nexthdr icmpv6 counter name leaked; }
}`,
    );
    const ifindex = Number((await client.must('ip', '-o', 'link', 'show', 'dev', 'eth0')).split(':')[0]);
    const wire = new Wire(client.name, ifindex);
    const self = new Ipv6LeakTest(topology, forwarding, wire, ifindex, enterNamespace(node.name));
    self.open();
    // Open a flow to the denied port, which the next policies suspend.
    self.enforce(allowed(0, DENIED));
    const live = ipv6Packet(IPV6.client, IPV6.server, { sourcePort: LIVE, destinationPort: DENIED });
    await self.arrives(ipv6Frame(live, { hopLimit: HOP_LIMIT }));
    self.enforce(allowed(0));
    return self;
  }

  async remove(): Promise<void> {
    this.wire.close();
    this.#datapath.close();
    detach(this.topology.pinPath);
    this.leave();
    await this.topology.remove();
  }

  #options(): DatapathOptions {
    const { forwarding } = this;
    return datapathOptions(this.topology.pinPath, {
      ...{ ipv6: 'enforce', forwarding, interfaces: ['lan0', 'wan0'], flowCapacity: this.#flowCapacity },
      ...{ pickupMs: 60_000, reversePath: 'strict' },
    });
  }

  open(): void {
    this.#datapath.close();
    this.#datapath = new LocalDatapath(this.#options());
    this.#datapath.open();
    this.#datapath.attach();
  }

  enforce(of: Policy): void {
    this.#datapath.stage(compile(of, { ipv6: true }), this.#generation++);
    this.#datapath.prove(samplesOf(of, { ipv6: true }));
    this.#datapath.flip();
  }

  /** Sends a frame of the client until the server has counted a packet of a leak test. */
  async arrives(frame: Uint8Array): Promise<void> {
    await this.leaked();
    await expect
      .poll(
        () => {
          this.wire.send(frame);
          return this.leaked();
        },
        { interval: 20 },
      )
      .toBeGreaterThan(0);
  }

  /** Fails unless the server counts each packet of the flood that the network stack forwards. */
  async arriveIfAllowed(): Promise<void> {
    this.enforce(everything);
    for (const frame of framesOf(30_000).slice(0, 5)) await this.arrives(frame);
  }

  /** Returns the number of packets of the client that have arrived since the last call. */
  async leaked(): Promise<number> {
    const text = await this.topology.server.must('nft', 'reset', 'counter', 'ip6', 'leak', 'leaked');
    return Number(/packets (\d+)/.exec(text)?.[1]);
  }

  /** Begins to send denied packets. */
  begin(perSecond: number): void {
    const { client } = this.topology;
    const words = [floodFile ?? '', client.name, String(this.ifindex), 'Infinity', String(perSecond)];
    const process = client.start(globalThis.process.execPath, words);
    const frames = Array.from({ length: PORTS }, (_, more) => framesOf(20_000 + more)).flat();
    process.stdin?.write(`${JSON.stringify(frames.map((frame) => Buffer.from(frame).toString('hex')))}\n`);
    this.#flood = { process, sent: firstLine(process) };
  }

  /** Ends the sending of packets. Returns the number of sent packets. */
  async end(): Promise<number> {
    this.#flood?.process.stdin?.end();
    return Number(await this.#flood?.sent);
  }

  /** Returns the number of packets that the interface of the client has sent. */
  async #sentByInterface(): Promise<number> {
    const text = await this.topology.client.must('ip', '-j', '-s', 'link', 'show', 'dev', 'eth0');
    const [link] = JSON.parse(text) as { readonly stats64: { readonly tx: { readonly packets: number } } }[];
    return link?.stats64.tx.packets ?? 0;
  }

  /** The events during which no denied packet may arrive. */
  readonly events: Readonly<Record<string, () => Promise<void>>> = {
    'another policy': async () => {
      for (const of of [defaultOnly('deny'), allowed(this.#generation), defaultOnly('deny'), allowed(0)]) {
        this.enforce(of);
        await pause(10);
      }
    },
    'flush of nftables': async () => {
      await this.topology.node.must('nft', 'flush', 'ruleset');
      await pause(200);
      this.#datapath.look();
      this.#datapath.attach();
    },
    restart: async () => {
      this.open();
      await pause(10);
      this.enforce(allowed(0));
    },
    'a restart with larger tables': async () => {
      this.#flowCapacity = this.#flowCapacity === 1_024 ? 2_048 : 1_024;
      this.open();
      await pause(10);
      this.enforce(allowed(0));
    },
    'SIGKILL of the process, also during a takeover': async () => {
      this.#datapath.close();
      const words = [successorFile ?? '', JSON.stringify(this.#options())];
      const successor = this.topology.node.start(process.execPath, words);
      const exited = new Promise((resolve) => successor.once('exit', resolve));
      await pause(150 + Math.random() * 450);
      successor.kill('SIGKILL');
      await exited;
      this.open();
      this.enforce(allowed(0));
    },
  };

  /**
   * Runs all events in turn, until the client has sent `count` packets. Returns the leaked packets for each
   * event.
   */
  async runEvents(count: number): Promise<Record<string, number>> {
    const found: Record<string, number> = {};
    const before = await this.#sentByInterface();
    do {
      for (const [name, event] of Object.entries(this.events)) {
        await event();
        found[name] = (found[name] ?? 0) + (await this.leaked());
      }
    } while ((await this.#sentByInterface()) - before < count);
    return found;
  }
}
