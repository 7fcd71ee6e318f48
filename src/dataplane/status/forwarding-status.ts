import type { ForwardingNow } from '#contracts/datapath.js';
import type { ReversePath } from '#contracts/datapath-numbers.js';
import type { WeirHook } from '#dataplane/attach/weir-hooks.js';
import { ALONE, DIRECT_ALWAYS } from '#dataplane/forwarding/forwarding.js';
import { thirdPartyFilter } from '#dataplane/forwarding/third-party-filters.js';
import { ThirdPartyProgram } from '#dataplane/forwarding/third-party-hooks.js';
import type { Guard } from '#dataplane/guard/nftables-guard.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import type { PinnedMaps } from '#dataplane/object/map-set.js';

export type ConfiguredDataplane = {
  readonly interfaces: readonly string[];
  readonly markMask: number;
  readonly reversePath: ReversePath;
};

/**
 * Returns how the datapath forwards allowed packets, and why. Reads the choice of the Weir process from the
 * pinned maps. If the process chose the network stack, searches for the third-party hook that is the reason.
 * `looks` is true if a Weir process runs, because only a running process looks for third-party hooks.
 */
export function forwardingOf(
  set: PinnedMaps,
  hooks: readonly WeirHook[],
  looks: boolean,
  configured: { readonly guard: Guard; readonly reversePath: ReversePath } | undefined,
): ForwardingNow {
  if (!set.has('ways') || mapShape(set.fd('ways')).maxEntries === 1) return { way: 'stack', reason: 'as configured' };
  const until = set.inspect(({ directUntil }) => directUntil);
  if (until === DIRECT_ALWAYS) return { way: 'direct', reason: 'as configured' };
  if (until > process.hrtime.bigint()) return ALONE;
  if (!looks) return { way: 'stack', reason: 'no process looks for third-party hooks' };
  if (configured === undefined) return { way: 'stack', reason: 'a third-party hook was found; --config shows which' };
  const program = new ThirdPartyProgram();
  try {
    const ingress = hooks.filter(({ direction }) => direction === 'ingress');
    const other = thirdPartyFilter(
      {
        policed: ingress.map((hook) => hook.interface),
        attachedProgram: (policed) => {
          const found = ingress.find((hook) => hook.interface.ifindex === policed.ifindex);
          return found && { programId: found.program.id, by: found.by };
        },
        reversePath: configured.reversePath,
        guardIsInstalled: () => configured.guard.stands(),
      },
      program,
    );
    return { way: 'stack', reason: other ?? 'the node has not looked for third-party hooks yet' };
  } finally {
    program.close();
  }
}
