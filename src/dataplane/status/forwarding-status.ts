import { dirname } from 'node:path';
import type { ForwardingNow } from '#contracts/datapath/datapath.js';
import type { ReversePath } from '#contracts/datapath/datapath-numbers.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { Pins } from '#dataplane/attach/pins.js';
import type { WeirHook } from '#dataplane/attach/weir-hooks.js';
import { ALONE, DIRECT_ALWAYS, WITH_NAT } from '#dataplane/forwarding/forwarding.js';
import { thirdPartyFilter } from '#dataplane/forwarding/third-party-filters.js';
import { ThirdPartyProgram } from '#dataplane/forwarding/third-party-hooks.js';
import { windowCheck } from '#dataplane/forwarding/window-checks.js';
import type { Guard } from '#dataplane/guard/nftables-guard.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import { conntrackKeepMs } from '#dataplane/loader/kernel-functions.js';
import type { PinnedMaps } from '#dataplane/object/map-set.js';
import { ForwardJudge } from '#dataplane/translation/forward-judge.js';

export type ConfiguredDataplane = Pick<
  DatapathOptions,
  'interfaces' | 'markMask' | 'reversePath' | 'policeLocal' | 'ipv6'
>;

/**
 * Returns how the datapath forwards allowed packets of an IP family, and why. Reads the choice of the Weir
 * process from the pinned maps. If the process chose the network stack, searches for the third-party hook
 * that is the reason. `looks` is true if a Weir process runs, because only a running process looks for
 * third-party hooks.
 */
export function forwardingOf(
  family: Family,
  set: PinnedMaps,
  hooks: readonly WeirHook[],
  looks: boolean,
  configured: { readonly guard: Guard; readonly reversePath: ReversePath } | undefined,
): ForwardingNow {
  const ofFamily = family === 'ipv4' ? set : set.ipv6;
  if (!ofFamily.has('ways') || mapShape(ofFamily.fd('ways')).maxEntries === 1)
    return { way: 'stack', reason: 'as configured' };
  const { until, translates } = set.inspect((slots) => ({
    until: slots.directUntil(family),
    translates: family === 'ipv4' && slots.translates('ipv4'),
  }));
  if (until === DIRECT_ALWAYS) return { way: 'direct', reason: 'as configured' };
  if (until > process.hrtime.bigint()) return translates ? WITH_NAT : ALONE;
  if (!looks) return { way: 'stack', reason: 'no process looks for third-party hooks' };
  if (configured === undefined) return { way: 'stack', reason: 'a third-party hook was found; --config shows which' };
  const program = new ThirdPartyProgram();
  try {
    const judges =
      translates && conntrackKeepMs() !== null
        ? new ForwardJudge(new Pins(dirname(set.folder)).links).programs()
        : null;
    const ingress = hooks.filter(({ direction }) => direction === 'ingress');
    const other = thirdPartyFilter(
      {
        family,
        policed: ingress.map((hook) => hook.interface),
        attachedProgram: (policed) => {
          const found = ingress.find((hook) => hook.interface.ifindex === policed.ifindex);
          return found && { programId: found.program.id, by: found.by };
        },
        reversePath: configured.reversePath,
        guardIsInstalled: () => configured.guard.stands(),
        judges,
      },
      program.look(),
    );
    const reason = other ?? (judges === null ? null : windowCheck());
    return { way: 'stack', reason: reason ?? 'the node has not looked for third-party hooks yet' };
  } finally {
    program.close();
  }
}
