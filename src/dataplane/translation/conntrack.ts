import type { End, Translation } from '#contracts/datapath/translation.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { attribute, attributesIn, NETLINK_NETFILTER, NetlinkSocket, NLM_F_REQUEST, viewOf } from '#libc/netlink.js';

/** Numbers of the kernel: NFNL_SUBSYS_CTNETLINK, and with it IPCTNL_MSG_CT_NEW and IPCTNL_MSG_CT_GET. */
const SUBSYSTEM = 1 << 8;
const NEW = SUBSYSTEM | 0;
const GET = SUBSYSTEM | 1;
/** A `struct nfgenmsg` for IPv4: family, version, and two bytes of resource id. */
const HEADER = Uint8Array.of(2, 0, 0, 0);
const CTA = { original: 1, reply: 2, status: 3 } as const;
const CTA_TUPLE = { ip: 1, protocol: 2 } as const;
const CTA_IP = { source: 1, destination: 2 } as const;
const CTA_PROTO = { number: 1, sourcePort: 2, destinationPort: 3, icmpId: 4, icmpType: 5, icmpCode: 6 } as const;
/** The bits IPS_SRC_NAT and IPS_DST_NAT of the status of a connection. */
const BOTH_TRANSLATED = 0x30;
/** The ICMP queries that conntrack knows: the type of the query, and the type of its reply. */
const ICMP_REPLIES: ReadonlyMap<number, number> = new Map([
  [8, 0],
  [13, 14],
  [15, 16],
  [17, 18],
]);

/**
 * The addresses and ports of the packets of one direction, in host byte order. For an ICMP query, both ports
 * are the ICMP identifier, and `icmpType` is the type of the packet.
 */
export type Tuple = {
  readonly protocol: number;
  readonly source: End;
  readonly destination: End;
  readonly icmpType: number;
};
type Connection = { readonly original: Tuple; readonly reply: Tuple };

/**
 * Reads the kernel's connection tracking by netlink, like `conntrack -G`. If the kernel does not answer, for
 * example because it has no module nf_conntrack_netlink, no connection is found.
 */
export class Conntrack {
  readonly #socket = new NetlinkSocket(NETLINK_NETFILTER, 0);
  #translatedTwice: readonly Connection[] | undefined;

  /**
   * Returns how the node translates a flow with these real ends (client before SNAT, server after DNAT;
   * D17b). Returns null if conntrack has no connection for the flow, or does not translate it. The kernel
   * finds a connection by the addresses and ports of either direction. One direction has the real ends,
   * unless the node translates both source and destination. Connections with both translations are searched
   * in a list, which also contains other conntrack zones.
   */
  translationOf(real: Tuple): Translation | null {
    // Conntrack may translate the identifier of an ICMP query, so the reply can have another identifier.
    const isServer = (end: End): boolean =>
      real.protocol === IPPROTO.icmp ? end.address === real.destination.address : isEnd(end, real.destination);
    const isOf = ({ original, reply }: Connection): boolean =>
      original.protocol === real.protocol && isEnd(original.source, real.source) && isServer(reply.source);
    const found =
      [real, replyTo(real)].flatMap((tuple) => this.#get(tuple) ?? []).find(isOf) ?? this.#listed().find(isOf);
    if (found === undefined) return null;
    const { original, reply } = found;
    const isTranslated = !isEnd(reply.destination, real.source) || !isEnd(original.destination, real.destination);
    return isTranslated ? { source: reply.destination, destination: original.destination } : null;
  }

  /**
   * Returns the destination after DNAT of a packet with these addresses and ports; null if conntrack has no
   * connection for it.
   */
  destinationOf(wire: Tuple): End | null {
    const found = this.#get(wire);
    if (found === null) return null;
    const { original, reply } = found;
    const isOriginal = isEnd(original.source, wire.source) && isEnd(original.destination, wire.destination);
    return isOriginal ? reply.source : original.source;
  }

  close(): void {
    this.#socket.close();
  }

  #get(tuple: Tuple): Connection | null {
    this.#socket.send(GET, NLM_F_REQUEST, Buffer.concat([HEADER, attribute(CTA.original, ...tupleAttributes(tuple))]));
    const messages = this.#socket.receive();
    const answer = messages === 'lost' ? undefined : messages.find(({ type }) => type === NEW);
    return answer === undefined ? null : connectionIn(answer.payload);
  }

  /** Returns the connections of which source and destination are translated, of all zones. */
  #listed(): readonly Connection[] {
    this.#translatedTwice ??= this.#list();
    return this.#translatedTwice;
  }

  #list(): readonly Connection[] {
    const request = Buffer.concat([HEADER, attribute(CTA.status, number32(BOTH_TRANSLATED))]);
    try {
      return this.#socket.dump(GET, NEW, request).flatMap((payload) => connectionIn(payload) ?? []);
    } catch (failure) {
      if (failure instanceof KernelFailure) return [];
      throw failure;
    }
  }
}

function replyTo({ protocol, source, destination, icmpType }: Tuple): Tuple {
  return { protocol, source: destination, destination: source, icmpType: ICMP_REPLIES.get(icmpType) ?? icmpType };
}

function isEnd(one: End, other: End): boolean {
  return one.address === other.address && one.port === other.port;
}

function tupleAttributes({ protocol, source, destination, icmpType }: Tuple): Buffer[] {
  const number = attribute(CTA_PROTO.number, Uint8Array.of(protocol));
  return [
    attribute(
      CTA_TUPLE.ip,
      attribute(CTA_IP.source, number32(source.address)),
      attribute(CTA_IP.destination, number32(destination.address)),
    ),
    protocol === IPPROTO.icmp
      ? attribute(
          CTA_TUPLE.protocol,
          number,
          attribute(CTA_PROTO.icmpId, number16(source.port)),
          attribute(CTA_PROTO.icmpType, Uint8Array.of(icmpType)),
          attribute(CTA_PROTO.icmpCode, Uint8Array.of(0)),
        )
      : attribute(
          CTA_TUPLE.protocol,
          number,
          attribute(CTA_PROTO.sourcePort, number16(source.port)),
          attribute(CTA_PROTO.destinationPort, number16(destination.port)),
        ),
  ];
}

function connectionIn(payload: DataView): Connection | null {
  const attributes = attributesIn(payload, HEADER.length);
  const [original, reply] = [CTA.original, CTA.reply].map((type) => tupleIn(attributes.get(type)));
  return original == null || reply == null ? null : { original, reply };
}

/** Returns the addresses and ports in a tuple of conntrack; null if they are not of IPv4. */
function tupleIn(tuple: Uint8Array | undefined): Tuple | null {
  if (tuple === undefined) return null;
  const parts = attributesIn(viewOf(tuple), 0);
  const ip = attributesIn(viewOf(parts.get(CTA_TUPLE.ip) ?? new Uint8Array()), 0);
  const l4 = attributesIn(viewOf(parts.get(CTA_TUPLE.protocol) ?? new Uint8Array()), 0);
  const [source, destination] = [ip.get(CTA_IP.source), ip.get(CTA_IP.destination)];
  const protocol = l4.get(CTA_PROTO.number)?.at(0);
  if (source === undefined || destination === undefined || protocol === undefined) return null;
  const port = (type: number): number => {
    const value = l4.get(protocol === IPPROTO.icmp ? CTA_PROTO.icmpId : type);
    return value === undefined ? 0 : viewOf(value).getUint16(0);
  };
  return {
    protocol,
    source: { address: viewOf(source).getUint32(0), port: port(CTA_PROTO.sourcePort) },
    destination: { address: viewOf(destination).getUint32(0), port: port(CTA_PROTO.destinationPort) },
    icmpType: l4.get(CTA_PROTO.icmpType)?.at(0) ?? 0,
  };
}

function number16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
}

function number32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value >>> 0);
  return bytes;
}
