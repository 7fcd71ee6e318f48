import { formatPrefix } from '#addresses/ip-address.js';
import { createTopology, type Topology } from '#cli/tour/topology.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { addIpv6, IPV6 } from '#test/kernel/ipv6.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { type FiveTuple, Frames, type FramesProgram } from './frames.js';
import { ipv6Prefix } from './ipv6-policy.js';
import { onOneCpu } from './one-cpu.js';

/**
 * The address ranges of the traffic: SOURCES are behind the client, and DESTINATIONS are behind the server.
 */
export const SOURCES = { base: 0x1e00_0000, text: '30.0.0.0/8' } as const;
export const DESTINATIONS = { base: 0x1400_0000, text: '20.0.0.0/8' } as const;

const SETTLE_MS = 50;

type Place = 'client' | 'node' | 'server';
type Device = { readonly mac: string; readonly ifindex: number };
type Devices = Readonly<Record<'client' | 'server' | 'lan' | 'wan', Device>>;

export type Send = {
  readonly protocol: number;
  readonly tcpFlags?: number;
  readonly from?: 'client' | 'server';
  readonly newPorts?: boolean;
};

/**
 * A client, a node and a server in a row. The client or the server sends frames through the node. With
 * `sink`, the other end counts the frames and drops them.
 */
export class ForwardRig {
  readonly #devices: Devices;
  readonly #links: (() => void)[] = [];

  private constructor(
    readonly topology: Topology,
    readonly frames: Frames,
    devices: Devices,
    readonly family: Family,
  ) {
    this.#devices = devices;
  }

  /** `family`: that of the frames. */
  static async open(tag: string, capacity: number, family: Family = 'ipv4'): Promise<ForwardRig> {
    const topology = await createTopology(tag);
    try {
      const { client, node, server } = topology;
      const mac = async (place: Place, device: string): Promise<string> =>
        JSON.parse(await topology[place].must('ip', '-j', 'link', 'show', device))[0].address;
      const ifindex = async (place: Place, device: string): Promise<number> =>
        JSON.parse(await topology[place].must('ip', '-j', 'link', 'show', device))[0].ifindex;
      const device = async (place: Place, name: string): Promise<Device> => ({
        mac: await mac(place, name),
        ifindex: await ifindex(place, name),
      });
      const devices = {
        client: await device('client', 'eth0'),
        server: await device('server', 'eth0'),
        lan: await device('node', 'lan0'),
        wan: await device('node', 'wan0'),
      };
      // A veth device accepts frames from XDP only in NAPI mode. Turning GRO on enables NAPI mode.
      for (const name of ['lan0', 'wan0']) await node.must('ethtool', '-K', name, 'gro', 'on');
      await node.must('ip', 'route', 'add', SOURCES.text, 'via', '10.77.1.2');
      await node.must('ip', 'route', 'add', DESTINATIONS.text, 'via', '10.77.2.2');
      await node.must(
        'ip',
        'neigh',
        'replace',
        '10.77.1.2',
        'lladdr',
        devices.client.mac,
        'dev',
        'lan0',
        'nud',
        'permanent',
      );
      await node.must(
        'ip',
        'neigh',
        'replace',
        '10.77.2.2',
        'lladdr',
        devices.server.mac,
        'dev',
        'wan0',
        'nud',
        'permanent',
      );
      if (family === 'ipv6') await routeIpv6(topology, devices);
      else
        for (const place of [client, node, server])
          await place.must('sh', '-c', 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true');
      return new ForwardRig(topology, new Frames(capacity), devices, family);
    } catch (failure) {
      await topology.remove();
      throw failure;
    }
  }

  /** Calls `act` while this thread is in the network namespace of the client, node or server. */
  inside<T>(place: Place, act: () => T): T {
    const leave = enterNamespace(this.topology[place].name);
    try {
      return act();
    } finally {
      leave();
    }
  }

  /**
   * Attaches BPF programs to the client and the server that count and drop the frames of the traffic there.
   */
  sink(): void {
    this.#links.push(this.attach('server', 'eth0', 'sink_server', 'tcx_ingress'));
    this.#links.push(this.attach('client', 'eth0', 'sink_client', 'tcx_ingress'));
  }

  attach(place: Place, device: string, program: FramesProgram, hook: 'xdp' | 'tcx_ingress'): () => void {
    return this.inside(place, () => {
      const found = listInterfaces().find(({ name }) => name === device);
      return this.frames.attach(program, hook, found?.ifindex ?? 0);
    });
  }

  use(flows: readonly FiveTuple[]): void {
    this.frames.use(flows);
  }

  /**
   * Sends `count` frames from one end. Returns nanoseconds per frame. Throws if the number of frames that
   * arrive at the other end is not `expected`. If `expected` is null, any number may arrive.
   */
  send(count: number, { from = 'client', ...stream }: Send, expected: number | null = count): number {
    const { frames } = this;
    frames.resetReceived();
    const own = this.#devices[from];
    const door = this.#devices[from === 'client' ? 'lan' : 'wan'];
    const ns = this.inside(from, () =>
      onOneCpu(() =>
        frames.send(
          {
            ...stream,
            fromMac: own.mac,
            toMac: door.mac,
            ifindex: own.ifindex,
            reversed: from === 'server',
            ipv6: this.family === 'ipv6',
          },
          count,
        ),
      ),
    );
    const arrived = this.#arrived(from === 'client' ? 'server' : 'client', expected ?? 0);
    if (expected !== null && arrived !== expected) {
      throw new Error(`${arrived} of ${count} frames from the ${from} arrived, expected ${expected}`);
    }
    return ns;
  }

  /**
   * Runs a BPF program over `count` UDP packets without a pause, as if the packets came from the client.
   * Returns nanoseconds per packet.
   */
  replay(programFd: number, count: number): number {
    return this.inside('node', () => onOneCpu(() => this.frames.replay(programFd, this.#devices.lan.ifindex, count)));
  }

  /**
   * Returns the number of frames that arrived. Waits for missing frames at most SETTLE_MS milliseconds,
   * because the last frames may still be in a queue of the kernel.
   */
  #arrived(sink: 'client' | 'server', expected: number): number {
    const deadline = performance.now() + SETTLE_MS;
    while (this.frames.received(sink) < expected && performance.now() < deadline);
    return this.frames.received(sink);
  }

  async remove(): Promise<void> {
    for (const detach of this.#links) detach();
    this.frames.close();
    await this.topology.remove();
  }
}

async function routeIpv6(topology: Topology, { client, server }: Devices): Promise<void> {
  await addIpv6(topology);
  const { node } = topology;
  const ends = [
    [SOURCES, IPV6.client, client.mac, 'lan0'],
    [DESTINATIONS, IPV6.server, server.mac, 'wan0'],
  ] as const;
  for (const [{ base }, via, mac, device] of ends) {
    const network = formatPrefix(ipv6Prefix({ address: base, length: 8 }));
    await node.must('ip', '-6', 'route', 'add', network, 'via', via);
    await node.must('ip', '-6', 'neigh', 'replace', via, 'lladdr', mac, 'dev', device, 'nud', 'permanent');
  }
}
