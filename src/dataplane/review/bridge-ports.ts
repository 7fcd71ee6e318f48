import type { Interface } from '#dataplane/attach/interfaces.js';
import type { Link } from '#dataplane/attach/links.js';
import type { ThirdPartyHook } from '#dataplane/forwarding/third-party-hooks.js';

/** Kinds of links that take frames from the link that they are made on, with stations of their own. */
const TAPS: ReadonlySet<string> = new Set(['macvlan', 'macvtap', 'ipvlan', 'ipvtap']);

/**
 * Policed interfaces whose frames are delivered in another way than by routing them in their own name, a sentence each: the hook does not judge
 * switched frames, and the guard goes by the name of the master. `receivers`: the known interfaces that take frames from another one.
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
