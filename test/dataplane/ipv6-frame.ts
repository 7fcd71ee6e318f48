import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { ETHERNET, MAX_FRAME, MORE_FRAGMENTS, type PacketOptions, transportBytes, writeTransport } from './frame.js';

export const NEXT = { hopByHop: 0, routing: 43, fragment: 44, esp: 50, ah: 51, none: 59, destination: 60 } as const;

/**
 * An extension header: its number, and its bytes. The number of the next header replaces the first byte.
 */
export type ExtensionHeader = { readonly kind: number; readonly bytes: readonly number[] };

export type Ipv6FrameOptions = PacketOptions & {
  /** Extension headers before and after the fragment header. */
  readonly extensions?: readonly ExtensionHeader[];
  readonly fragmented?: readonly ExtensionHeader[];
  /** The number of the header after the extension headers; by default the protocol of the packet. */
  readonly nextHeader?: number;
  /** The traffic class and the flow label of the header, as one number of 28 bits. */
  readonly label?: number;
  readonly hopLimit?: number;
  readonly payloadLength?: number;
};

const HEADER = 40;

/** Returns an extension header with options, which is `units` times eight bytes longer than the shortest. */
export function optionHeader(kind: number, units = 0): ExtensionHeader {
  return { kind, bytes: [0, units, ...new Array<number>(6 + 8 * units).fill(0)] };
}

export function routingHeader(type: number): ExtensionHeader {
  return { kind: NEXT.routing, bytes: [0, 0, type, 0, 0, 0, 0, 0] };
}

/** `unit`: the offset of the fragment, in units of eight bytes. */
export function fragmentHeader(unit: number, more: boolean, id: number): ExtensionHeader {
  const field = unit * 8 + (more ? 1 : 0);
  return {
    kind: NEXT.fragment,
    bytes: [0, 0, field >> 8, field & 255, id >>> 24, (id >> 16) & 255, (id >> 8) & 255, id & 255],
  };
}

/** Writes `packet` as an Ethernet frame into `bytes`, and returns the length of the frame in bytes. */
export function writeIpv6Packet(bytes: Uint8Array, packet: Packet<bigint>, options: Ipv6FrameOptions = {}): number {
  const { extensions = [], fragment, id = 0, fragmented = [] } = options;
  const placed =
    fragment === undefined ? [] : [fragmentHeader(fragment & 0x1fff, (fragment & MORE_FRAGMENTS) !== 0, id)];
  const chain = [...extensions, ...placed, ...fragmented];
  const kinds = [...chain.map(({ kind }) => kind), options.nextHeader ?? packet.protocol];
  const headers = chain.flatMap((header, index) => [kinds[index + 1] ?? 0, ...header.bytes.slice(1)]);
  const behind = bytesBehind(packet, options);
  const length = ETHERNET + HEADER + headers.length + behind;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  bytes.fill(0, 0, length);
  bytes.set([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
  view.setUint16(12, options.etherType ?? 0x86dd);
  view.setUint32(ETHERNET, (options.version ?? 6) * 2 ** 28 + (options.label ?? 0));
  view.setUint16(ETHERNET + 4, options.payloadLength ?? headers.length + behind);
  bytes.set([kinds[0] ?? 0, options.hopLimit ?? 64], ETHERNET + 6);
  for (const [index, address] of [packet.source, packet.destination].entries()) {
    view.setBigUint64(ETHERNET + 8 + 16 * index, address >> 64n);
    view.setBigUint64(ETHERNET + 16 + 16 * index, address & 0xffff_ffff_ffff_ffffn);
  }
  bytes.set(headers, ETHERNET + HEADER);
  const l4 = ETHERNET + HEADER + headers.length;
  if (options.content !== undefined) bytes.set(options.content, l4);
  else writeTransport(view, l4, behind, packet, options, IPPROTO.icmpv6);
  return length;
}

const scratch = new Uint8Array(MAX_FRAME);

/** Like `quoteOf`, for a packet of IPv6. The extension headers belong to the IP header. */
export function quoteOfIpv6(packet: Packet<bigint>, options: Ipv6FrameOptions = {}, bytes = 8): Uint8Array {
  const length = writeIpv6Packet(scratch, packet, options);
  const l4 = length - bytesBehind(packet, options);
  const content = new Uint8Array(8 + l4 - ETHERNET + bytes);
  content.set(scratch.subarray(ETHERNET, Math.min(length, l4 + bytes)), 8);
  return content;
}

/** Returns the number of bytes after the extension headers. */
function bytesBehind({ protocol }: Packet<bigint>, { content, payloadBytes = 4 }: Ipv6FrameOptions): number {
  return content?.length ?? transportBytes(protocol) + payloadBytes;
}
