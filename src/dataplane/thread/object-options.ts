import { type DatapathOptions, DEFAULT_DENY_EVENTS, DEFAULT_FLOW_EVENTS } from '#contracts/datapath-options.js';
import { builtObject } from '#dataplane/loader/built-objects.js';
import { canCopyRoutes, fibFlags } from '#dataplane/routes/fib-flags.js';
import type { FixedOptions } from '#dataplane/upgrade/successor.js';

/** The options of the BPF object that do not depend on the policy. */
export function objectOptions(options: DatapathOptions): FixedOptions {
  const isDirect = options.forwarding !== 'stack';
  return {
    objectPath: options.objectPath ?? builtObject,
    flowCapacity: options.flowCapacity,
    flowShare: options.flowShare,
    grantCapacity: options.grantCapacity,
    denyEvents: DEFAULT_DENY_EVENTS,
    flowEvents: DEFAULT_FLOW_EVENTS,
    timeoutsMs: options.timeoutsMs,
    policeLocal: options.policeLocal,
    divertDns: options.divertDns ?? false,
    servicePlane: options.servicePlane,
    direct: isDirect,
    fibFlags: fibFlags(),
    // Direct forwarding needs the gateway, which the copy does not have; there the copy serves only the check
    // of sources.
    copiesRoutes: canCopyRoutes() && !(isDirect && options.reversePath === 'off'),
    markMask: options.markMask,
    reversePath: options.reversePath,
    passNonIpv4: options.nonIpv4 === 'pass',
    judgeAll: false,
    traceWord: false,
  };
}
