import {
  type DatapathOptions,
  DEFAULT_DENY_EVENTS,
  DEFAULT_FLOW_EVENTS,
} from '#contracts/datapath/datapath-options.js';
import { builtObject } from '#dataplane/loader/built-objects.js';
import { conntrackKeepMs, hasConntrackLookup, hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { canCopyRoutes, fibFlags } from '#dataplane/routes/fib-flags.js';
import type { FixedOptions } from '#dataplane/upgrade/successor.js';

/** Returns the options of the BPF object that do not depend on the size of the policy. */
export function objectOptions(options: DatapathOptions): FixedOptions {
  const isDirect = options.forwarding !== 'stack';
  const readsConntrack = options.readsConntrack ?? hasConntrackLookup();
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
    translated: options.translated ?? [],
    readsConntrack,
    keepMs: isDirect && readsConntrack ? conntrackKeepMs() : null,
    judges: hasNetfilterPrograms(),
    // Direct forwarding needs the gateway of a route, but the copy of the routes contains only the outgoing
    // interface. With direct forwarding, the datapath uses the copy only to check source addresses, so no
    // copy is made if that check is off.
    copiesRoutes: canCopyRoutes() && !(isDirect && options.reversePath === 'off'),
    markMask: options.markMask,
    reversePath: options.reversePath,
    passNonIpv4: options.nonIpv4 === 'pass',
    passWithoutPolicy: options.passWithoutPolicy,
    classifyAll: false,
    traceWord: false,
  };
}
