import type { Interface } from '#dataplane/attach/interfaces.js';
import type { Link } from '#dataplane/attach/links.js';
import type { ThirdPartyHook } from '#dataplane/forwarding/third-party-hooks.js';

/** Kinds of links that receive frames of their lower link, by MAC or IP addresses of their own. */
const TAPS: ReadonlySet<string> = new Set(['macvlan', 'macvtap', 'ipvlan', 'ipvtap']);

/**
 * Faults of policed interfaces whose frames are not routed under the interface's own name: the hook does not
 * classify switched frames, and the guard matches the name of the master. `receivers`: the interfaces that
 * are known to take frames from another one.
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
      return [`${name} is a port of ${called}: name ${master?.name ?? 'that'}, or take ${name} out of it`];
    }
    const taps = links.filter(({ lower, kind }) => lower === ifindex && TAPS.has(kind));
    if (taps.length > 0) {
      return [
        `${name} gives frames to ${taps.map((tap) => `${tap.kind} ${tap.name}`).join(', ')}, unjudged: remove it`,
      ];
    }
    const receiver = receivers.find(({ kind, id }) => kind === 'receiver' && id === ifindex);
    return receiver === undefined ? [] : [`${name} gives frames to ${receiver.symbol}, unjudged`];
  });
}
