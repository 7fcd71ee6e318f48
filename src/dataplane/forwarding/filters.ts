import { CLSACT } from '#dataplane/attach/attach-program.js';
import { attributesIn, NETLINK_ROUTE, NetlinkSocket } from '#libc/netlink.js';

const RTM_NEWTFILTER = 44;
const RTM_GETTFILTER = 46;
// Size and field offsets of `struct tcmsg`, in bytes.
const TCMSG = { size: 20, ifindex: 4, handle: 8, parent: 12, info: 16 } as const;
const PARENT_INGRESS = 0xffff_fff2;
const TCA_KIND = 1;

/** Returns the kinds of those tc filters on the ingress of an interface that Weir did not attach. */
export function thirdPartyFilters(ifindex: number): string[] {
  const request = new DataView(new ArrayBuffer(TCMSG.size));
  request.setInt32(TCMSG.ifindex, ifindex, true);
  request.setUint32(TCMSG.parent, PARENT_INGRESS, true);
  const socket = new NetlinkSocket(NETLINK_ROUTE, 0);
  try {
    return socket.dump(RTM_GETTFILTER, RTM_NEWTFILTER, new Uint8Array(request.buffer)).flatMap((filter) => {
      const handle = filter.getUint32(TCMSG.handle, true);
      const priority = filter.getUint32(TCMSG.info, true) >>> 16;
      const kind = Buffer.from(attributesIn(filter, TCMSG.size).get(TCA_KIND) ?? [])
        .toString('latin1')
        .replace(/\0$/, '');
      // The kernel first lists the classifier with handle 0, and then each filter of that classifier. Ignore
      // both messages for Weir's filter.
      const isWeir = kind === 'bpf' && priority === CLSACT.priority && (handle === CLSACT.handle || handle === 0);
      return isWeir ? [] : [kind];
    });
  } finally {
    socket.close();
  }
}
