import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { fibFlags } from '#dataplane/loader/kernel-functions.js';
import { back, udp } from '#test/dataplane/conversation.js';
import { type FrameOptions, TCP, withChecksum, writeFrame } from '#test/dataplane/frame.js';
import { type Loaded, loadForTest, PASSED, SENT, SKB } from '#test/dataplane/loaded.js';
import { allowAll } from './policies.js';
import { topologyOfFile } from './topology-of-file.js';

const IP = 14;
const FOR_EVER = 0xffff_ffff_ffff_ffffn;
const at = (text: string): number => parseIpv4Address(text) ?? Number.NaN;
const asked: Packet<number> = { ...udp, source: at(ADDRESSES.client), destination: at(ADDRESSES.server) };

const topology = topologyOfFile('sent');
let kernel: Loaded;
type PolicedInterface = { readonly ifindex: number; readonly mac: readonly number[] };
let lan: PolicedInterface;
let wan: PolicedInterface;
beforeAll(async () => {
  const door = async (device: string): Promise<PolicedInterface> => {
    const shown = await topology.node.must('ip', '-j', 'link', 'show', device);
    const [{ address }] = JSON.parse(shown) as [{ readonly address: string }];
    return {
      ifindex: listInterfaces().find(({ name }) => name === device)?.ifindex ?? 0,
      mac: address.split(':').map((byte) => Number.parseInt(byte, 16)),
    };
  };
  lan = await door('lan0');
  wan = await door('wan0');
  kernel = loadForTest({ classifyAll: false, reversePath: 'strict', direct: true, fibFlags: fibFlags() });
});
afterAll(() => kernel.close());
beforeEach(() => {
  kernel.forget();
  kernel.activate(allowAll);
  kernel.context.setUint32(SKB.ifindex, lan.ifindex, true);
  kernel.slots.setDirectUntil('ipv4', FOR_EVER);
});

type Change = (ip: Uint8Array) => void;
/**
 * Sends an allowed packet with the destination MAC address `station` through the ingress program. Returns the
 * TC action.
 */
function see(
  packet: Packet<number>,
  options: FrameOptions = {},
  before: Change = () => {},
  after: Change = () => {},
  station = lan.mac,
): number {
  const bytes = new Uint8Array(kernel.frame.length);
  const length = writeFrame(bytes, packet, options);
  bytes.set(station);
  before(bytes.subarray(IP));
  const frame = withChecksum(bytes.slice(0, length));
  after(frame.subarray(IP));
  kernel.frame.set(frame);
  const { returned } = kernel.runFrame(length);
  expect(kernel.contextOut.getUint32(SKB.mark, true)).not.toBe(0);
  return returned;
}
const set =
  (offset: number, value: number): Change =>
  (ip) => {
    ip[offset] = value;
  };

test('with direct forwarding, an allowed packet is sent directly, without the network stack', () => {
  expect([see(asked), see(asked)]).toEqual([SENT, SENT]);
});

test('with direct forwarding, all packets of a TCP connection are sent directly, from the SYN to the last ACK', () => {
  const connection: Packet<number> = { ...asked, protocol: IPPROTO.tcp };
  const seen = (packet: Packet<number>, tcpFlags: number, from = lan, sequence = 1): number => {
    kernel.context.setUint32(SKB.ifindex, from.ifindex, true);
    const numbers = { sequence, acknowledgment: 8, payloadBytes: 0 };
    return see(packet, { tcpFlags, ...numbers }, undefined, undefined, from.mac);
  };
  const answer = back(connection);
  const packets = [
    seen(connection, TCP.syn),
    seen(answer, TCP.syn | TCP.ack, wan),
    seen(connection, TCP.ack),
    seen(answer, TCP.ack, wan),
    seen(answer, TCP.fin | TCP.ack, wan, 7),
    seen(connection, TCP.fin | TCP.ack, lan, 7),
    seen(answer, TCP.ack, wan, 8),
  ];
  expect(packets).toEqual(packets.map(() => SENT));
  expect(kernel.flowsIn('flows')).toMatchObject([{ state: 'tcp_closing', packets: [3n, 4n] }]);
});

test('direct forwarding is off until the node process sets a deadline for it, and after this deadline', () => {
  kernel.slots.setDirectUntil('ipv4', 0n);
  expect([see(asked), see(asked)]).toEqual([PASSED, PASSED]);
  kernel.slots.setDirectUntil('ipv4', process.hrtime.bigint() + 60_000_000_000n);
  expect([see(asked), see(asked)]).toEqual([SENT, SENT]);
  // A deadline 20 ms in the past, because the clock of the datapath is a few milliseconds behind.
  kernel.slots.setDirectUntil('ipv4', process.hrtime.bigint() - 20_000_000n);
  expect([see(asked), see(asked)]).toEqual([PASSED, PASSED]);
});

test.each([
  ['has IPv4 options', () => see(asked, { optionBytes: 4 })],
  ['has a TTL of 1', () => see(asked, {}, set(8, 1))],
  ['has a wrong checksum', () => see(asked, {}, undefined, set(10, 0x5a))],
  ['leaves by the interface that it came in by', () => see({ ...asked, destination: at(ADDRESSES.clientOther) + 7 })],
])(
  'with direct forwarding, a packet that the datapath cannot forward itself (it %s) goes to the network stack',
  (_, pass) => {
    expect(see(asked)).toBe(SENT);
    expect(pass()).toBe(PASSED);
    expect(pass()).toBe(PASSED);
  },
);

test('with direct forwarding, a packet to 0.0.0.0/8 goes to the network stack, even if a default route exists', async () => {
  await topology.node.must('ip', 'route', 'add', 'default', 'via', ADDRESSES.server);
  expect(see({ ...asked, destination: at('8.8.8.8') })).toBe(SENT);
  expect(see({ ...asked, destination: at('0.1.2.3') })).toBe(PASSED);
  await topology.node.must('ip', 'route', 'del', 'default');
});

test('direct forwarding sets skb->priority by the type of service, as the network stack does', () => {
  const prioritiesOf = (types: readonly number[]): number[] =>
    types.map((type) => {
      expect(see(asked, {}, set(1, type))).toBe(SENT);
      return kernel.contextOut.getUint32(SKB.priority, true);
    });
  // Values of ip_tos2prio in Linux: 0 best effort, 2 bulk, 6 interactive, 4 interactive bulk.
  expect(prioritiesOf([0x00, 0x02, 0x08, 0x10, 0x18, 0x28, 0xb8])).toEqual([0, 0, 2, 6, 4, 2, 4]);
});
