import { attributeList, attributesIn, NETLINK_ROUTE, NetlinkSocket, viewOf } from '#libc/netlink.js';
import type { Interface } from './interfaces.js';

const RTM_NEWLINK = 16;
const RTM_GETLINK = 18;
// Size and field offsets of `struct ifinfomsg`, in bytes.
const IFINFOMSG = { size: 16, type: 2, index: 4, flags: 8 } as const;
const IFLA = {
  address: 1,
  name: 3,
  link: 5,
  master: 10,
  linkInfo: 18,
  extendedMask: 29,
  linkNamespace: 37,
  xdp: 43,
  propertyList: 52,
  alternativeName: 53,
} as const;
/**
 * Attributes with ids of XDP programs: the first if one XDP mode is in use, the others (one for each mode) if
 * several are.
 */
const IFLA_XDP_IDS = [4, 5, 6, 7];
const ARPHRD_ETHER = 1;
const IFLA_INFO = { kind: 1, data: 2 } as const;
const IFLA_BR = { vlanFiltering: 7, callIptables: 36 } as const;
const IFF = { up: 1, loopback: 8 } as const;
const RTEXT_FILTER_SKIP_STATS = 8;

/**
 * A network interface and its relation to other interfaces. `master` and `lower` are interface indexes, or 0
 * if the interface has no master or lower interface in this namespace.
 */
export type Link = Interface & {
  /** The type of the interface as in `ip link add type`; empty for hardware. */
  readonly kind: string;
  readonly master: number;
  /** The index of the interface on which this interface is built, such as the parent of a VLAN. */
  readonly lower: number;
  /** The MAC address; empty if the interface has none. */
  readonly mac: Uint8Array;
  readonly isUp: boolean;
  readonly isLoopback: boolean;
  readonly isEthernet: boolean;
  /** The names that `ip link property add` gave the interface in addition. */
  readonly alternativeNames: readonly string[];
  readonly xdpPrograms: readonly number[];
  /**
   * Whether this is a bridge with the option `nf_call_iptables`. The sysctl for all bridges is not part of
   * this field.
   */
  readonly callsIptables: boolean;
  /** Whether this is a bridge with the option `vlan_filtering`. */
  readonly filtersVlans: boolean;
};

/** Returns the interfaces of this network namespace, read by netlink. */
export function listLinks(): Link[] {
  const socket = new NetlinkSocket(NETLINK_ROUTE, 0);
  try {
    const request = new DataView(new ArrayBuffer(IFINFOMSG.size + 8));
    request.setUint16(IFINFOMSG.size, 8, true);
    request.setUint16(IFINFOMSG.size + 2, IFLA.extendedMask, true);
    request.setUint32(IFINFOMSG.size + 4, RTEXT_FILTER_SKIP_STATS, true);
    return socket.dump(RTM_GETLINK, RTM_NEWLINK, new Uint8Array(request.buffer)).map((message) => {
      const attributes = attributesIn(message, IFINFOMSG.size);
      const info = nested(attributes.get(IFLA.linkInfo));
      const kind = textIn(info.get(IFLA_INFO.kind));
      const bridge = kind === 'bridge' ? nested(info.get(IFLA_INFO.data)) : null;
      const flags = message.getUint32(IFINFOMSG.flags, true);
      return {
        name: textIn(attributes.get(IFLA.name)),
        ifindex: message.getInt32(IFINFOMSG.index, true),
        kind,
        master: numberIn(attributes.get(IFLA.master)),
        lower: attributes.has(IFLA.linkNamespace) ? 0 : numberIn(attributes.get(IFLA.link)),
        mac: attributes.get(IFLA.address)?.slice() ?? new Uint8Array(),
        isUp: (flags & IFF.up) !== 0,
        isLoopback: (flags & IFF.loopback) !== 0,
        isEthernet: message.getUint16(IFINFOMSG.type, true) === ARPHRD_ETHER,
        alternativeNames: attributeList(viewOf(attributes.get(IFLA.propertyList) ?? new Uint8Array()), 0)
          .filter(([type]) => type === IFLA.alternativeName)
          .map(([, name]) => textIn(name)),
        xdpPrograms: xdpProgramsIn(nested(attributes.get(IFLA.xdp))),
        callsIptables: bridge?.get(IFLA_BR.callIptables)?.[0] === 1,
        filtersVlans: bridge?.get(IFLA_BR.vlanFiltering)?.[0] === 1,
      };
    });
  } finally {
    socket.close();
  }
}

function nested(bytes: Uint8Array = new Uint8Array()): Map<number, Uint8Array> {
  return attributesIn(viewOf(bytes), 0);
}

function xdpProgramsIn(attributes: ReadonlyMap<number, Uint8Array>): number[] {
  return [...new Set(IFLA_XDP_IDS.map((type) => numberIn(attributes.get(type))))].filter((id) => id !== 0);
}

function numberIn(bytes: Uint8Array | undefined): number {
  return bytes === undefined ? 0 : viewOf(bytes).getUint32(0, true);
}

function textIn(bytes: Uint8Array | undefined): string {
  return Buffer.from(bytes ?? [])
    .toString('utf8')
    .replace(/\0$/, '');
}
