import {
  type DatapathOptions,
  DEFAULT_DENY_EVENTS,
  DEFAULT_FLOW_EVENTS,
} from '#contracts/datapath/datapath-options.js';
import { Hooks } from '#dataplane/attach/interface-hooks.js';
import { Ownership } from '#dataplane/attach/ownership.js';
import { Pins } from '#dataplane/attach/pins.js';
import { Forwarding } from '#dataplane/forwarding/forwarding.js';
import { Guard } from '#dataplane/guard/nftables-guard.js';
import { programId } from '#dataplane/loader/bpf-fd.js';
import { type BpfObject, builtObject } from '#dataplane/loader/bpf-object.js';
import type { Direction } from '#dataplane/loader/direction.js';
import {
  canCopyRoutes,
  conntrackKeepMs,
  fibFlags,
  hasConntrackLookup,
  hasNetfilterPrograms,
} from '#dataplane/loader/kernel-functions.js';
import { Translation } from '#dataplane/translation/translation.js';
import type { FixedOptions } from '#dataplane/upgrade/successor.js';
import type { Descriptors } from '#libc/descriptors.js';

/** The parts of the kernel's state that a datapath changes, also before it is open. */
export type KernelParts = {
  readonly objectOptions: FixedOptions;
  readonly pins: Pins;
  readonly ownership: Ownership;
  readonly hooks: Hooks;
  readonly guard: Guard;
  readonly forwarding: Forwarding;
  readonly translation: Translation;
};

export function kernelParts(options: DatapathOptions, descriptors: Descriptors): KernelParts {
  const pins = new Pins(options.pinPath);
  const hooks = new Hooks(options, pins);
  const guard = new Guard(options);
  const forwarding = new Forwarding(options, hooks, guard);
  return {
    objectOptions: objectOptions(options),
    pins,
    ownership: new Ownership(options.pinPath, descriptors),
    hooks,
    guard,
    forwarding,
    translation: new Translation(options, guard, pins, forwarding),
  };
}

function objectOptions(options: DatapathOptions): FixedOptions {
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
    passIpv6: options.ipv6 === 'pass',
    enforcesIpv6: options.ipv6 === 'enforce',
    passNonIpv4: options.nonIpv4 === 'pass',
    passWithoutPolicy: options.passWithoutPolicy,
    classifyAll: false,
    traceWord: false,
  };
}

export function programIds(object: BpfObject): Readonly<Record<Direction, number>> {
  return {
    ingress: programId(object.programFd('weir_ingress')),
    egress: programId(object.programFd('weir_egress')),
  };
}
