import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { flushConntrack } from './conntrack.js';
import { datapathOptions } from './datapath-options.js';
import { forwarded } from './forwarded.js';
import { frameOf, type SentPacket } from './nat-frames.js';
import { CHAINS, echo, NAT_CHAINS, NatNode, only, tcp, udp } from './nat-node.js';
import { ALLOWED, DENIED, denyAll } from './policies.js';
import { claimOtherLayout } from './variants.js';

const { client, nodeWan, server } = ADDRESSES;
const [floodFile, successorFile] = ['flood-process.js', 'successor-process.js'].map((name) =>
  fileURLToPath(new URL(`../../dist/test/kernel/${name}`, import.meta.url)),
);
/** The node forwards this port of its address to port DENIED of the client. */
const PUBLIC = 9_000;
/** The node forwards port 80 of this address to port DENIED of the server. */
const SERVICE = '10.99.0.1';
const RULES = [
  'add rule ip mine post oifname "wan0" masquerade',
  'add rule ip mine post iifname "lan0" oifname "lan0" masquerade',
  `add rule ip mine pre ip daddr ${nodeWan} meta l4proto { tcp, udp } th dport ${PUBLIC} dnat to ${client}:${DENIED}`,
  `add rule ip mine pre ip daddr ${SERVICE} meta l4proto { tcp, udp } th dport 80 dnat to ${server}:${DENIED}`,
];
const SYN = 2;
/** The policies of a leak test allow nothing but packets of the client to port ALLOWED of the server. */
const allowed = only(client, [server, ALLOWED]);
/** The source port of connections that an earlier policy has allowed. Conntrack has entries for them. */
const LIVE = 7_000;

/** Packets that the policies deny, by the host that sends them. Each arrives at port DENIED, or is a ping. */
const DENIED_PACKETS: Readonly<Record<'client' | 'server', readonly SentPacket[]>> = {
  client: [
    udp([client, 20_000], [server, DENIED]),
    tcp([client, 20_000], [server, DENIED], SYN),
    udp([client, LIVE], [server, DENIED]),
    udp([client, 20_000], [SERVICE, 80]),
    tcp([client, 20_000], [SERVICE, 80], SYN),
    udp([client, 20_000], [nodeWan, PUBLIC]),
    echo(client, server, 0),
  ],
  server: [
    udp([server, 20_000], [nodeWan, PUBLIC]),
    tcp([server, 20_000], [nodeWan, PUBLIC], SYN),
    udp([server, LIVE], [nodeWan, PUBLIC]),
  ],
};

/** Number of source ports, or ICMP identifiers, of each packet. */
const PORTS = 64;

/** Returns the frames of these packets in hexadecimal, from PORTS source ports each. */
function framesOf(packets: readonly SentPacket[]): string[] {
  const variants = Array.from({ length: PORTS }, (_, more) =>
    packets.map(({ packet, options }) => {
      const sourcePort = packet.sourcePort + more;
      return frameOf({ packet: { ...packet, sourcePort }, options: { ...options, icmpId: sourcePort } });
    }),
  );
  return variants.flat().map((frame) => Buffer.from(frame).toString('hex'));
}

type Forwarding = 'auto' | 'stack';
const LOOK_MS = 500;
/** After this time of packets in both directions, the node sends a UDP flow directly. */
const ESTABLISHED_MS = 5_000;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A node with live NAT, hosts that send denied packets, and a counter of those that arrive. */
export class LeakTest {
  #floods: { readonly flood: ChildProcess; readonly sent: Promise<string> }[] = [];
  #generation = 100;
  #flowCapacity = 1_024;
  /** Looks for third-party hooks, as a node does each second. */
  readonly #looking: NodeJS.Timeout;

  private constructor(
    readonly node: NatNode,
    readonly forwarding: Forwarding,
  ) {
    this.#looking = setInterval(() => {
      if (this.node.isOpen) this.node.datapath.look();
    }, LOOK_MS);
  }

  /** With `forwarding: auto`, the node has chains for NAT alone, and sends established flows directly. */
  static async create(tag: string, forwarding: Forwarding): Promise<LeakTest> {
    const node = await NatNode.create(tag);
    const self = new LeakTest(node, forwarding);
    const { topology } = node;
    await topology.node.must('ip', 'route', 'add', `${SERVICE}/32`, 'via', server);
    for (const host of [topology.client, topology.server]) {
      await host.must(
        'nft',
        `add table ip leak
add counter ip leak leaked
add chain ip leak in { type filter hook prerouting priority -300; }
add rule ip leak in meta l4proto { tcp, udp } th dport ${DENIED} counter name leaked
add rule ip leak in icmp type echo-request counter name leaked`,
      );
    }
    await self.#translate();
    node.police(only(server, [client, DENIED]), self.#options());
    const live = udp([server, LIVE], [nodeWan, PUBLIC]);
    await node.passes('server', live, 'client', `udp ${server}:${LIVE} > ${client}:${DENIED}`);
    node.enforce(only(client, [server, DENIED]));
    const outward = udp([client, LIVE], [server, DENIED]);
    await node.passes('client', outward, 'server', `udp ${nodeWan}:${LIVE} > ${server}:${DENIED}`);
    await self.#establish(outward, udp([server, DENIED], [nodeWan, LIVE]));
    node.enforce(allowed);
    await self.leaked();
    return self;
  }

  remove(): Promise<void> {
    clearInterval(this.#looking);
    return this.node.remove();
  }

  #options(more: Partial<DatapathOptions> = {}): Partial<DatapathOptions> {
    return { forwarding: this.forwarding, flowCapacity: this.#flowCapacity, ...more };
  }

  get #rules(): string {
    return [this.forwarding === 'auto' ? NAT_CHAINS : CHAINS, ...RULES].join('\n');
  }

  async #translate(): Promise<void> {
    await this.node.topology.node.must('nft', this.#rules);
  }

  /** With `forwarding: auto`, sends packets of a flow until they bypass the network stack. */
  async #establish(request: SentPacket, reply: SentPacket): Promise<void> {
    if (this.forwarding === 'stack') return;
    for (const until = performance.now() + ESTABLISHED_MS; performance.now() < until; await pause(100)) {
      this.node.send('client', request);
      this.node.send('server', reply);
    }
    for (const wire of Object.values(this.node.wires)) wire.seen();
    const before = forwarded();
    this.node.send('client', request);
    await expect.poll(() => this.node.received('server').length, { interval: 5 }).toBe(1);
    expect(forwarded() - before, 'packets of an established flow by the stack').toBe(0);
  }

  /** Begins to send denied packets from both hosts: at most `count` packets of each. */
  async begin(count: number, perSecond: number): Promise<void> {
    for (const host of ['client', 'server'] as const) {
      const space = this.node.topology[host];
      const link = await space.must('ip', '-o', 'link', 'show', 'dev', 'eth0');
      const words = [floodFile ?? '', space.name, link.split(':')[0] ?? '', String(count), String(perSecond)];
      const flood = space.start(process.execPath, words);
      flood.stdin?.write(`${JSON.stringify(framesOf(DENIED_PACKETS[host]))}\n`);
      this.#floods.push({ flood, sent: firstLine(flood) });
    }
  }

  get isSending(): boolean {
    return this.#floods.some(({ flood }) => flood.exitCode === null);
  }

  /** Ends the sending of packets. Returns the number of sent packets. */
  async end(): Promise<number> {
    const counts = this.#floods.map(async ({ flood, sent }) => {
      flood.stdin?.end();
      return Number(await sent);
    });
    this.#floods = [];
    return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
  }

  /** Returns the number of denied packets that have arrived since the last call. */
  async leaked(): Promise<number> {
    const { client: inside, server: outside } = this.node.topology;
    const texts = await Promise.all([inside, outside].map((host) => host.must('nft', 'reset counters table ip leak')));
    return texts.reduce((sum, text) => sum + Number(/packets (\d+)/.exec(text)?.[1]), 0);
  }

  /** Fails unless an allowed packet passes. */
  async passes(): Promise<void> {
    for (const wire of Object.values(this.node.wires)) wire.seen();
    const request = udp([client, 6_000], [server, ALLOWED]);
    await this.node.passes('client', request, 'server', `udp ${nodeWan}:6000 > ${server}:${ALLOWED}`);
  }

  /** Returns datapath options with other map sizes: a new datapath then takes over the flows. */
  #otherSize(): Partial<DatapathOptions> {
    this.#flowCapacity = this.#flowCapacity === 1_024 ? 2_048 : 1_024;
    return this.#options();
  }

  /** The events during which no denied packet may arrive. */
  readonly events: Readonly<Record<string, () => Promise<void>>> = {
    'another policy': async () => {
      for (const policed of [denyAll, allowed, denyAll, allowed]) {
        this.node.enforce(policed);
        await pause(10);
      }
    },
    'attach again': async () => {
      this.node.datapath.attach();
      await pause(10);
    },
    'flush of conntrack': async () => {
      for (let count = 0; count < 3; count++) {
        flushConntrack();
        await pause(10);
      }
    },
    restart: async () => {
      this.node.open(this.#options());
      await pause(10);
      this.node.enforce(allowed);
    },
    upgrade: async () => {
      this.node.open(this.#otherSize());
      await pause(30);
      this.node.enforce(allowed);
    },
    'upgrade from another layout': async () => {
      claimOtherLayout(this.node.topology.pinPath);
      this.node.open(this.#otherSize());
      await pause(30);
      this.node.enforce(allowed);
    },
    'upgrade with another mark mask': async () => {
      for (const markMask of [0x0f00_0000, 0x00f0_0000]) {
        claimOtherLayout(this.node.topology.pinPath);
        this.node.open({ ...this.#otherSize(), markMask });
        await pause(30);
        this.node.enforce(allowed);
      }
    },
    'flush of nftables that leaves NAT': async () => {
      await this.node.topology.node.must('nft', `flush ruleset\n${this.#rules}`);
      await pause(50);
      this.node.datapath.look();
      this.node.datapath.attach();
    },
    'flush of nftables with NAT': async () => {
      await this.node.topology.node.must('nft', 'flush ruleset');
      await pause(30);
      this.node.datapath.look();
      this.node.datapath.attach();
      await this.#translate();
      await pause(30);
      this.node.datapath.look();
    },
    'takeover from a state without a forward judge': async () => {
      await this.node.topology.node.must('nft', 'delete table ip mine');
      this.node.datapath.look();
      this.node.close();
      await this.#translate();
      await pause(30);
      claimOtherLayout(this.node.topology.pinPath);
      this.node.open(this.#otherSize());
      await pause(30);
      this.node.enforce(allowed);
    },
    'SIGKILL during a takeover': async () => {
      this.node.close();
      const options = datapathOptions(this.node.topology.pinPath, {
        ...{ interfaces: ['lan0', 'wan0'] },
        ...this.#otherSize(),
      });
      const words = [successorFile ?? '', JSON.stringify(options), '0', String(this.#generation++)];
      const successor = this.node.topology.node.start(process.execPath, words);
      const exited = new Promise((resolve) => successor.once('exit', resolve));
      await pause(150 + Math.random() * 450);
      successor.kill('SIGKILL');
      await exited;
      this.node.open(this.#options());
      await pause(10);
      this.node.enforce(allowed);
    },
    'first attach': async () => {
      this.node.detach();
      this.node.open(this.#options());
      // Packets from before the attach pass without a policy. Wait until they have arrived.
      await pause(20);
      await this.leaked();
      await pause(30);
      this.node.enforce(allowed);
    },
  };
}
