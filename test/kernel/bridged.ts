import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { createTopology, type Topology } from '#cli/tour/topology.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { type FrameOptions, MAX_FRAME, TCP, withChecksum, writeFrame } from '#test/dataplane/frame.js';
import { Wire } from './wire.js';

/** MAC addresses of the stations, of the bridge, and of its port lan0. */
const MACS = {
  client: '02:00:00:00:00:0c',
  server: '02:00:00:00:00:0e',
  bridge: '02:00:00:00:00:b0',
  lan0: '02:00:00:00:00:a0',
  all: 'ff:ff:ff:ff:ff:ff',
  unknown: '02:00:00:00:00:99',
} as const;
type Station = keyof typeof MACS;
/** A station, or a MAC address. */
type Destination = Station | `${string}:${string}`;

/** Where a frame can be seen: at the far ends of the ports lan0, wan0 and lan1, and on the bridge device. */
type Place = 'client' | 'server' | 'third' | 'node';

/**
 * A bridge `br0` on the node, with the ports lan0, wan0 and lan1. `third` is the far end of lan1: an
 * interface without an address in the network namespace of the client.
 */
export type BridgedTopology = {
  readonly topology: Topology;
  /**
   * Sends frames at one place. Returns the names of the frames that each other place has seen, once all
   * frames were handled.
   */
  send(at: Place, frames: Readonly<Record<string, Uint8Array>>): Promise<Record<Place, string[]>>;
  remove(): Promise<void>;
};

export async function createBridge(tag: string): Promise<BridgedTopology> {
  const topology = await createTopology(tag);
  const { node, client, server } = topology;
  await node.must(
    'sh',
    '-ec',
    `sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 || true
     ip link add lan1 type veth peer name eth1 netns ${client.name}
     ip link add br0 address ${MACS.bridge} type bridge forward_delay 0 mcast_snooping 0
     ip link set lan0 address ${MACS.lan0}
     for port in lan0 wan0 lan1; do ip addr flush dev $port; ip link set $port up master br0; done
     ip link set br0 up`,
  );
  for (const [space, mac, address] of [
    [client, MACS.client, '10.77.1.2/16'],
    [server, MACS.server, '10.77.2.2/16'],
  ] as const) {
    await space.must('ip', 'link', 'set', 'eth0', 'address', mac);
    await space.must(
      'sh',
      '-ec',
      `ip addr flush dev eth0; ip addr add ${address} dev eth0; sysctl -qw net.ipv6.conf.all.disable_ipv6=1`,
    );
  }
  await client.must('ip', 'link', 'set', 'eth1', 'up');
  const open = async (space: Topology['client'], name: string): Promise<Wire> =>
    new Wire(space.name, Number((await space.must('ip', '-o', 'link', 'show', 'dev', name)).split(':')[0]));
  const wires: Record<Place, Wire> = {
    client: await open(client, 'eth0'),
    server: await open(server, 'eth0'),
    third: await open(client, 'eth1'),
    node: await open(node, 'br0'),
  };
  // A packet socket does not see its own frames, so another socket sends the last frame.
  const ending = await open(node, 'br0');
  let sent = 0;
  return {
    topology,
    send: async (at, frames) => {
      for (const wire of Object.values(wires)) wire.seen();
      for (const frame of Object.values(frames)) wires[at].send(frame);
      // Each place handles frames in order. The last frame comes from the bridge itself, and is ARP: no
      // policy drops it.
      const last = frameOf('bridge', 'all', '0806', Buffer.from(`end ${sent++}`));
      ending.send(last);
      const seen = { client: [], server: [], third: [], node: [] } as Record<Place, string[]>;
      for (const place of Object.keys(seen) as Place[]) {
        if (place === at) continue;
        const got: Uint8Array[] = [];
        const hasEnded = () => got.some((frame) => Buffer.compare(frame, last) === 0);
        await expect
          .poll(
            () => {
              got.push(...wires[place].seen());
              return hasEnded();
            },
            { timeout: 2_000, interval: 5 },
          )
          .toBe(true);
        seen[place] = Object.keys(frames).filter((name) =>
          got.some((frame) => Buffer.compare(frame.subarray(-16), frames[name]?.subarray(-16) ?? frame) === 0),
        );
      }
      return seen;
    },
    remove: async () => {
      for (const wire of [...Object.values(wires), ending]) wire.close();
      await topology.remove();
    },
  };
}

/** Returns a frame with 16 last bytes that depend on its other bytes. */
export function frameOf(from: Station, to: Destination, etherType: string, behind: Uint8Array): Uint8Array {
  const [source, destination] = [MACS[from], MACS[to as Station] ?? to].map((mac) => mac.replaceAll(':', ''));
  const head = Buffer.concat([Buffer.from(`${destination}${source}${etherType}`, 'hex'), behind]);
  return Buffer.concat([head, createHash('md5').update(head).digest()]);
}

type Ends = {
  readonly from?: Station;
  readonly to?: Destination;
  readonly source?: string;
  readonly destination?: string;
};
type Transport = { readonly sport?: number; readonly dport?: number; readonly tcp?: number };

/** Returns an IPv4 frame: by default UDP from the client to port 9 of the server. */
export function ipv4(name: string, given: Ends & Transport & FrameOptions = {}): Uint8Array {
  const { from = 'client', to = 'server', source = '10.77.1.2', destination = '10.77.2.2' } = given;
  const { sport = 4_000, dport = 9, tcp } = given;
  const bytes = new Uint8Array(MAX_FRAME);
  const packet = {
    source: parseIpv4Address(source) ?? 0,
    destination: parseIpv4Address(destination) ?? 0,
    protocol: tcp === undefined ? IPPROTO.udp : IPPROTO.tcp,
    sourcePort: sport,
    destinationPort: dport,
    icmpType: 0,
    icmpCode: 0,
  };
  const options = tcp === undefined ? given : { ...given, tcpFlags: tcp };
  const length = writeFrame(bytes, packet, { payloadBytes: 16, ...options });
  const frame = withChecksum(bytes.slice(0, length));
  const mac = (station: Destination): Buffer =>
    Buffer.from((MACS[station as Station] ?? station).replaceAll(':', ''), 'hex');
  frame.set(mac(to), 0);
  frame.set(mac(from), 6);
  if (given.content === undefined) frame.set(createHash('md5').update(name).digest(), length - 16);
  return frame;
}

/** Returns the reply to a frame of `ipv4` with the same options. */
export function reply(name: string, given: Ends & Transport & FrameOptions = {}): Uint8Array {
  const { from = 'client', to = 'server', source = '10.77.1.2', destination = '10.77.2.2' } = given;
  const { sport = 4_000, dport = 9, tcp } = given;
  const back = { from: to as Station, to: from, source: destination, destination: source, sport: dport, dport: sport };
  return ipv4(name, { ...back, ...(tcp === undefined ? {} : { tcp: TCP.syn | TCP.ack }) });
}
