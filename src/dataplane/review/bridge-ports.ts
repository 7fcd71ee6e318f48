import type { Interface } from '#dataplane/attach/interfaces.js';
import type { Link } from '#dataplane/attach/netlink-interfaces.js';
import type { ThirdPartyHook } from '#dataplane/forwarding/third-party-hooks.js';

/**
 * Kinds of interfaces that take frames from their lower interface: those frames that are addressed to their
 * own MAC or IP address.
 */
const TAPS: ReadonlySet<string> = new Set(['macvlan', 'macvtap', 'ipvlan', 'ipvtap']);

/**
 * Returns one fault (a sentence for the operator) for each policed interface whose frames another interface
 * takes over. The datapath does not classify frames that a bridge switches. For routed frames, the guard
 * (Weir's nftables rules) would have to match the name of the master interface. `receivers` are kernel
 * functions that take over the frames of an interface, such as those of a bridge or bond.
 */
export function portFaults(
  policed: readonly Interface[],
  links: readonly Link[],
  receivers: readonly ThirdPartyHook[],
): string[] {
  return policed.flatMap(({ name, ifindex }) => {
    const link = links.find((found) => found.ifindex === ifindex);
    if (link !== undefined && link.master !== 0) {
      const master = links.find((found) => found.ifindex === link.master);
      const called = master === undefined ? 'another interface' : `${master.kind} ${master.name}`.trim();
      const instead = master?.name ?? 'that interface';
      return [
        `${name} is a port of ${called}: put ${instead} into dataplane.interfaces instead, or remove ${name} from it`,
      ];
    }
    const taps = links.filter(({ lower, kind }) => lower === ifindex && TAPS.has(kind));
    if (taps.length > 0) {
      return [
        `${name} gives frames to ${taps.map((tap) => `${tap.kind} ${tap.name}`).join(', ')} before the datapath sees them: remove it`,
      ];
    }
    const receiver = receivers.find(({ kind, id }) => kind === 'receiver' && id === ifindex);
    return receiver === undefined ? [] : [`${name} gives frames to ${receiver.symbol} before the datapath sees them`];
  });
}
