import type { DatapathChange, ForwardingNow } from '#contracts/datapath/datapath.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { Family } from '#contracts/policy/policy-model.js';
import type { Slots } from '#dataplane/activate/slots.js';
import type { Hooks } from '#dataplane/attach/interface-hooks.js';
import type { Guard } from '#dataplane/guard/nftables-guard.js';
import { isOutOfDescriptors } from '#libc/kernel-failure.js';
import { thirdPartyFilter } from './third-party-filters.js';
import { type ThirdPartyHook, ThirdPartyProgram } from './third-party-hooks.js';
import { endWindowChecks, windowCheck } from './window-checks.js';

/**
 * Nanoseconds for which the datapath sends packets past the network stack after a check has found no
 * third-party hook there. During this time, packets can skip a hook that an administrator added after the
 * check.
 */
const DIRECT_FOR_NS = 3_000_000_000n;
/**
 * The time until which the datapath forwards without the network stack if the setting is `forwarding:
 * direct`. The monotonic clock never reaches this time.
 */
export const DIRECT_ALWAYS = 0xffff_ffff_ffff_ffffn;

const FAMILIES: readonly Family[] = ['ipv4', 'ipv6'];
const NOT_ENFORCED: ForwardingNow = { way: 'stack', reason: 'dataplane.ipv6 is not enforce' };
const UNSEEN: ForwardingNow = { way: 'stack', reason: 'the node has not looked for third-party hooks yet' };
const CONFIGURED: Readonly<Record<'stack' | 'direct', ForwardingNow>> = {
  stack: { way: 'stack', reason: 'as configured' },
  direct: { way: 'direct', reason: 'as configured' },
};
export const ALONE: ForwardingNow = { way: 'direct', reason: 'no third-party hook' };
export const WITH_NAT: ForwardingNow = { way: 'direct', reason: 'no third-party hook except NAT' };

/**
 * Chooses for each IP family whether the datapath sends allowed packets directly to the next interface or
 * through the network stack. Writes the choice to the map `active`, where the datapath reads it.
 */
export class Forwarding {
  #program: ThirdPartyProgram | Error | undefined;
  #now: Readonly<Record<Family, ForwardingNow>>;
  #endedWindowChecks = false;

  constructor(
    readonly options: Pick<DatapathOptions, 'forwarding' | 'reversePath' | 'ipv6'>,
    readonly hooks: Hooks,
    readonly guard: Guard,
  ) {
    this.#now = ofBoth(options.forwarding === 'auto' ? UNSEEN : CONFIGURED[options.forwarding]);
  }

  get now(): Readonly<Record<Family, ForwardingNow>> {
    return this.#now;
  }

  /**
   * Writes the configured way of forwarding (direct or by the network stack) to the map `active`, and so
   * replaces the choice of an earlier process. With the setting `auto`, the datapath begins with the network
   * stack.
   */
  begin(slots: Slots): void {
    setDirectUntil(slots, this.options.forwarding === 'direct' ? DIRECT_ALWAYS : 0n);
  }

  /**
   * With `forwarding: auto`, looks for third-party hooks, and extends or stops direct forwarding. Returns a
   * change event for each IP family whose reason for the choice has changed since the last call. The caller
   * must call this function more often than every `DIRECT_FOR_NS` nanoseconds, and after each change of
   * hooks. `judges`: the ids of the forward judges (Weir's netfilter programs) if the datapath can translate
   * established connections of IPv4 itself, else null.
   */
  look(slots: Slots, judges: readonly number[] | null): DatapathChange[] {
    if (this.options.forwarding !== 'auto') return [];
    const before = this.#now;
    const beganNs = process.hrtime.bigint();
    this.#now = this.#lookForOthers(judges);
    return FAMILIES.flatMap((family) => {
      const now = this.#now[family];
      slots.setDirectUntil(family, now.way === 'direct' ? beganNs + DIRECT_FOR_NS : 0n);
      return before[family].reason === now.reason ? [] : [{ type: 'forwarding_changed', family, ...now }];
    });
  }

  /**
   * The caller must call this function when no further call of `look` follows. With `auto` the datapath then
   * falls back to the network stack; a configured choice stays in force.
   */
  end(slots: Slots): void {
    if (this.options.forwarding === 'auto') setDirectUntil(slots, 0n);
  }

  close(): void {
    if (this.#program instanceof ThirdPartyProgram) this.#program.close();
    this.#program = undefined;
    if (this.options.forwarding === 'auto') this.#now = ofBoth(UNSEEN);
  }

  /**
   * Returns the hooks that forwarded packets pass, including those of the guard (Weir's nftables rules).
   * Empty if the kernel refused the BPF program that lists the hooks.
   */
  thirdPartyHooks(): readonly ThirdPartyHook[] {
    this.#program ??= loadOthers();
    return this.#program instanceof Error ? [] : this.#program.look();
  }

  /**
   * Returns whether the node translates addresses of a family that the datapath polices: nftables has a chain
   * of the type `nat`, or iptables has the table `nat`. True if the kernel cannot list the hooks.
   */
  translates(family: Family): boolean {
    if (family === 'ipv6' && this.options.ipv6 !== 'enforce') return false;
    try {
      const hooks = this.thirdPartyHooks();
      return this.#program instanceof Error || hooks.some(({ symbol }) => symbol.startsWith(`nf_nat_${family}_`));
    } catch {
      return true;
    }
  }

  /**
   * Returns the ids of the netfilter programs at the forward hook. Undefined if the kernel cannot list the
   * hooks.
   */
  netfilterPrograms(): readonly number[] | undefined {
    try {
      const hooks = this.thirdPartyHooks();
      if (this.#program instanceof Error) return undefined;
      return hooks.flatMap(({ kind, id }) => (kind === 'forward' && id !== 0 ? id : []));
    } catch {
      return undefined;
    }
  }

  #lookForOthers(judges: readonly number[] | null): Record<Family, ForwardingNow> {
    try {
      this.#program ??= loadOthers();
      if (this.#program instanceof Error) throw this.#program;
      const hooks = this.#program.look();
      const ipv4 = this.#choice('ipv4', hooks, judges);
      return { ipv4, ipv6: this.options.ipv6 === 'enforce' ? this.#choice('ipv6', hooks, null) : NOT_ENFORCED };
    } catch (error) {
      return ofBoth({ way: 'stack', reason: `look for third-party hooks: ${firstLine(error)}` });
    }
  }

  #choice(family: Family, hooks: readonly ThirdPartyHook[], judges: readonly number[] | null): ForwardingNow {
    const other = thirdPartyFilter(
      {
        family,
        policed: this.hooks.interfaces().policed,
        attachedProgram: (found) => this.hooks.attachedProgram(found, 'ingress'),
        reversePath: this.options.reversePath,
        guardIsInstalled: () => this.guard.stands(),
        judges,
      },
      hooks,
    );
    if (other !== null) return { way: 'stack', reason: other };
    if (judges === null) return ALONE;
    // Change the settings only once, so that the node does not undo a later change by the administrator.
    if (!this.#endedWindowChecks) endWindowChecks();
    this.#endedWindowChecks = true;
    const checked = windowCheck();
    return checked === null ? WITH_NAT : { way: 'stack', reason: checked };
  }
}

function ofBoth(now: ForwardingNow): Record<Family, ForwardingNow> {
  return { ipv4: now, ipv6: now };
}

function setDirectUntil(slots: Slots, monotonicNs: bigint): void {
  for (const family of FAMILIES) slots.setDirectUntil(family, monotonicNs);
}

/**
 * Returns the error as a value if the kernel refuses the BPF program. The caller keeps that value and does
 * not load the program again.
 */
function loadOthers(): ThirdPartyProgram | Error {
  try {
    return new ThirdPartyProgram();
  } catch (error) {
    // The error for a lack of file descriptors is thrown and not returned, so that the next call of `look`
    // loads the BPF program again.
    if (isOutOfDescriptors(error)) throw error;
    return error as Error;
  }
}

function firstLine(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n')[0] ?? '';
}
