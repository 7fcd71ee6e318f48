import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES, type Topology } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { udp } from '#test/dataplane/conversation.js';
import {
  ETHERNET,
  type FrameOptions,
  MAX_FRAME,
  MORE_FRAGMENTS,
  withChecksum,
  writeFrame,
} from '#test/dataplane/frame.js';
import { datapathOptions } from './datapath-options.js';
import { allowAll } from './policies.js';
import { topologyOfFile } from './topology-of-file.js';
import { Wire } from './wire.js';

const at = (text: string): number => parseIpv4Address(text) ?? Number.NaN;
const MARKER = Buffer.from('weir-shape');
const asked: Packet<number> = {
  ...udp,
  source: at(ADDRESSES.client),
  destination: at(ADDRESSES.server),
  destinationPort: 9,
};

const topology = topologyOfFile('shape');
let client: Wire;
let virtual: Wire;
let server: Wire;
let datapath: LocalDatapath;
beforeAll(async () => {
  const index = async (space: Topology['client']): Promise<number> =>
    Number((await space.must('sh', '-c', 'ip -o link show eth0 | cut -d: -f1')).trim());
  for (const [space, name] of [
    [topology.client, 'eth0'],
    [topology.node, 'lan0'],
    [topology.node, 'wan0'],
    [topology.server, 'eth0'],
  ] as const) {
    await space.must('ip', 'link', 'set', name, 'mtu', '9000');
  }
  // Give lan0 the destination MAC address of the frames that this test makes.
  await topology.node.must('ip', 'link', 'set', 'lan0', 'address', '02:00:00:00:00:01');
  // Make the node resolve its neighbours first, so that it does not delay a frame for the resolution.
  await topology.client.must('ping', '-c', '1', '-W', '2', ADDRESSES.server);
  client = new Wire(topology.client.name, await index(topology.client));
  virtual = new Wire(topology.client.name, await index(topology.client), true);
  server = new Wire(topology.server.name, await index(topology.server));
});
afterAll(() => {
  for (const wire of [client, virtual, server]) wire.close();
});

function start(more: Partial<DatapathOptions> = {}): void {
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, more));
  datapath.open();
  datapath.attach();
  datapath.stage(allowAll, 1);
  datapath.flip();
}
afterEach(() => {
  datapath.close();
  detach(topology.pinPath);
});

/** Returns a frame to the node whose payload ends with the marker. */
function frameOf(options: FrameOptions = {}, packet = asked): Uint8Array {
  const content = options.content ?? udpContent(packet);
  const bytes = new Uint8Array(MAX_FRAME);
  const frame = bytes.slice(0, writeFrame(bytes, packet, { ...options, content }));
  return withChecksum(frame);
}

function udpContent({ sourcePort, destinationPort }: Packet<number>, payload: Uint8Array = MARKER): Uint8Array {
  const content = new Uint8Array(8 + payload.length);
  const view = new DataView(content.buffer);
  view.setUint16(0, sourcePort);
  view.setUint16(2, destinationPort);
  view.setUint16(4, content.length);
  content.set(payload, 8);
  return content;
}

/** Returns a frame with VLAN `tags` between the MAC addresses and the EtherType. */
function tagged(...tags: readonly (readonly [number, number])[]): Uint8Array {
  const plain = frameOf();
  const header = tags.flatMap(([type, id]) => [type >> 8, type & 255, id >> 8, id & 255]);
  return Uint8Array.from([...plain.subarray(0, 12), ...header, ...plain.subarray(12)]);
}

/** Returns an 802.3 frame: a length in place of the EtherType, then the LLC header, then the IPv4 packet. */
function llc(length: number, ...header: readonly number[]): Uint8Array {
  const plain = frameOf();
  return Uint8Array.from([...plain.subarray(0, 12), length >> 8, length & 255, ...header, ...plain.subarray(ETHERNET)]);
}

/**
 * Sends frames, and returns the names of those that reach the server. Sends one last valid frame, whose
 * arrival shows that all earlier frames have been handled.
 */
async function arriving(frames: readonly (readonly [string, Uint8Array])[], by: Wire = client): Promise<string[]> {
  const last = Buffer.from('weir-last!');
  server.seen();
  for (const [index, [, frame]] of frames.entries()) {
    const numbered = Uint8Array.from(frame);
    const where = Buffer.from(numbered).lastIndexOf(MARKER);
    if (where >= 0) numbered[where] = 0x80 + index;
    by.send(numbered);
  }
  client.send(frameOf({ content: udpContent(asked, last) }));
  const found: number[] = [];
  const isLast = (): boolean => {
    const texts = server.seen().map((bytes) => Buffer.from(bytes));
    for (const text of texts) {
      const where = text.indexOf(MARKER.subarray(1));
      if (where > 0) found.push((text[where - 1] ?? 0) - 0x80);
    }
    return texts.some((text) => text.includes(last));
  };
  await expect.poll(isLast, { interval: 5 }).toBe(true);
  return [...new Set(found)].map((index) => frames[index]?.[0] ?? '?');
}

const VLANS = [0x8100, 0x88a8, 0x9100];
const IDS = [0, 1, 5, 4095];
const ENCAPSULATED: readonly (readonly [string, Uint8Array])[] = [
  ...VLANS.flatMap((type) => IDS.map((id) => [`${type.toString(16)} ${id}`, tagged([type, id])] as const)),
  ...VLANS.flatMap((outer) => VLANS.map((inner) => [`${outer} in ${inner}`, tagged([outer, 0], [inner, 0])] as const)),
  ['three tags', tagged([0x88a8, 0], [0x8100, 0], [0x8100, 0])],
  ['four tags', tagged([0x88a8, 0], [0x8100, 0], [0x8100, 0], [0x8100, 0])],
  ['LLC', llc(60, 0xaa, 0xaa, 3)],
  ['LLC with a wrong length', llc(1_400, 6, 6, 3)],
  ['SNAP', llc(60, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0)],
  ['EtherType 0x05ff', llc(0x05ff)],
  ['Novell', llc(60, 0xff, 0xff)],
  ['MPLS', llc(0x8847, 0, 0, 1, 64)],
  ['PPPoE', llc(0x8864, 0x11, 0, 0, 1, 0, 60, 0, 0x21)],
  ['IPv6', llc(0x86dd)],
];

describe.each([
  ['by the network stack', 'stack'],
  ['directly', 'direct'],
] as const)('a node that forwards %s', (_, forwarding) => {
  beforeEach(() => start({ forwarding }));

  test('a node forwards only frames with IPv4 directly after the Ethernet header', async () => {
    expect(await arriving([...ENCAPSULATED, ['plain', frameOf()]])).toEqual(['plain']);
  });

  test('a node does not forward a frame whose destination MAC address is not that of the node', async () => {
    const to = (...mac: number[]): Uint8Array => {
      const frame = frameOf();
      frame.set(mac);
      return frame;
    };
    const frames = [
      ['another host', to(2, 9, 9, 9, 9, 9)],
      ['broadcast', to(255, 255, 255, 255, 255, 255)],
      ['multicast', to(1, 0, 0x5e, 0, 0, 5)],
      ['plain', frameOf()],
    ] as const;
    await topology.node.must('ip', 'link', 'set', 'lan0', 'promisc', 'on');
    expect(await arriving(frames)).toEqual(['plain']);
    await topology.node.must('ip', 'link', 'set', 'lan0', 'promisc', 'off');
  });

  test('a node does not forward a packet with wrong lengths, a wrong checksum or a TTL below 2', async () => {
    const broken = (at_: number, value: number): Uint8Array => {
      const frame = frameOf();
      frame[at_] = value;
      return withChecksum(frame);
    };
    const badSum = frameOf();
    badSum[ETHERNET + 10] = (badSum[ETHERNET + 10] ?? 0) ^ 0x55;
    const frames = [
      ['longer than the frame', broken(ETHERNET + 2, 4)],
      ['shorter than its header', frameOf({ totalLength: 19 })],
      ['ends in UDP', frameOf({ totalLength: 27 })],
      ['version 5', broken(ETHERNET, 0x55)],
      ['4 words', broken(ETHERNET, 0x44)],
      ['15 words', broken(ETHERNET, 0x4f)],
      ['TTL 0', broken(ETHERNET + 8, 0)],
      ['TTL 1', broken(ETHERNET + 8, 1)],
      ['UDP length', broken(ETHERNET + 20 + 4, 9)],
      ['source route', frameOf({ optionBytes: 8, optionText: [131, 7, 4, 10, 77, 2, 2, 0] })],
      ['cut in the header', frameOf().subarray(0, 30)],
      ['cut to Ethernet', frameOf().subarray(0, 15)],
      ['IPv4 checksum', badSum],
      ['plain', frameOf()],
    ] as const;
    expect(await arriving(frames)).toEqual(['plain']);
  });

  test('a node does not forward a whole packet that is longer than the MTU of the next link', async () => {
    await topology.node.must('ip', 'link', 'set', 'wan0', 'mtu', '1000');
    const long = new Uint8Array(1_200);
    long.set(MARKER, 1_100);
    expect(
      await arriving([
        ['too long', frameOf({ content: udpContent(asked, long) })],
        ['plain', frameOf()],
      ]),
    ).toEqual(['plain']);
    await topology.node.must('ip', 'link', 'set', 'wan0', 'mtu', '9000');
  });

  test('a node classifies packets by headers that are in non-linear pages of the socket buffer', async () => {
    // Returns a virtio_net_hdr and a frame of more than one page. With this virtio_net_hdr, the kernel puts
    // only the Ethernet header into the linear data.
    const paged = (options: FrameOptions, packet = asked): Uint8Array => {
      const payload = new Uint8Array(6_000);
      payload.set(MARKER, 5_900);
      const bytes = new Uint8Array(ETHERNET + 20 + 40 + 8 + payload.length);
      const length = writeFrame(bytes, packet, { ...options, content: udpContent(packet, payload) });
      const frame = withChecksum(bytes.slice(0, length));
      const header = new DataView(new ArrayBuffer(10));
      header.setUint16(2, ETHERNET, true);
      return Uint8Array.from([...new Uint8Array(header.buffer), ...frame]);
    };
    const frames = [
      ['plain', paged({})],
      ['options', paged({ optionBytes: 40 })],
      ['source route', paged({ optionBytes: 8, optionText: [137, 7, 4, 10, 77, 2, 2, 0] })],
      ['later fragment', paged({ fragment: 100 })],
      ['first fragment', paged({ fragment: MORE_FRAGMENTS, id: 5 })],
      ['forged', paged({}, { ...asked, source: at('8.8.8.8') })],
    ] as const;
    expect((await arriving(frames, virtual)).sort()).toEqual(['first fragment', 'options', 'plain']);
  });
});
