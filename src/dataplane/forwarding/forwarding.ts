import type { DatapathChange, ForwardingNow } from '#contracts/datapath.js';
import type { DatapathOptions } from '#contracts/datapath-options.js';
import type { Slots } from '#dataplane/activate/slots.js';
import type { Hooks } from '#dataplane/attach/hooks.js';
import type { Guard } from '#dataplane/guard/nftables-guard.js';
import { isOutOfDescriptors } from '#libc/kernel-failure.js';
import { thirdPartyFilter } from './third-party-filters.js';
import { type ThirdPartyHook, ThirdPartyProgram } from './third-party-hooks.js';

/**
 * Direct forwarding lasts this long after a look that found no third-party hook. It bounds the time in which
 * packets may skip a hook that was just added.
 */
const DIRECT_FOR_NS = 3_000_000_000n;
/** Written for `direct`; the clock never reaches it. */
export const DIRECT_ALWAYS = 0xffff_ffff_ffff_ffffn;

const UNSEEN: ForwardingNow = { way: 'stack', reason: 'third-party hooks were not looked for yet' };
const CONFIGURED: Readonly<Record<'stack' | 'direct', ForwardingNow>> = {
  stack: { way: 'stack', reason: 'as configured' },
  direct: { way: 'direct', reason: 'as configured' },
};
export const ALONE: ForwardingNow = { way: 'direct', reason: 'no third-party hook' };

/**
 * Chooses direct forwarding or the network stack for allowed packets, and writes the choice for the kernel.
 */
export class Forwarding {
  #program: ThirdPartyProgram | Error | undefined;
  #now: ForwardingNow;

  constructor(
    readonly options: Pick<DatapathOptions, 'forwarding' | 'reversePath'>,
    readonly hooks: Hooks,
    readonly guard: Guard,
  ) {
    this.#now = options.forwarding === 'auto' ? UNSEEN : CONFIGURED[options.forwarding];
  }

  get now(): ForwardingNow {
    return this.#now;
  }

  /** Overwrites the setting of an earlier process. */
  begin(slots: Slots): void {
    slots.setDirectUntil(this.options.forwarding === 'direct' ? DIRECT_ALWAYS : 0n);
  }

  /**
   * Looks for third-party hooks; returns what changed. Must be called more often than every `DIRECT_FOR_NS`,
   * and whenever hooks may have changed.
   */
  look(slots: Slots): DatapathChange[] {
    if (this.options.forwarding !== 'auto') return [];
    const before = this.#now;
    const beganNs = process.hrtime.bigint();
    this.#now = this.#lookForOthers();
    slots.setDirectUntil(this.#now.way === 'direct' ? beganNs + DIRECT_FOR_NS : 0n);
    return before.reason === this.#now.reason ? [] : [{ type: 'forwarding_changed', ...this.#now }];
  }

  /** No looks follow: `auto` falls back to the stack; a configured way stays. */
  end(slots: Slots): void {
    if (this.options.forwarding === 'auto') slots.setDirectUntil(0n);
  }

  close(): void {
    if (this.#program instanceof ThirdPartyProgram) this.#program.close();
    this.#program = undefined;
    if (this.options.forwarding === 'auto') this.#now = UNSEEN;
  }

  /** All third-party hooks; empty if the kernel cannot be read. */
  others(): readonly ThirdPartyHook[] {
    this.#program ??= loadOthers();
    return this.#program instanceof Error ? [] : this.#program.look();
  }

  #lookForOthers(): ForwardingNow {
    try {
      this.#program ??= loadOthers();
      if (this.#program instanceof Error) throw this.#program;
      const { policed } = this.hooks.interfaces();
      const other = thirdPartyFilter(
        {
          policed,
          held: (found) => this.hooks.held(found, 'ingress'),
          reversePath: this.options.reversePath,
          guardStands: () => this.guard.stands(),
        },
        this.#program,
      );
      return other === null ? ALONE : { way: 'stack', reason: other };
    } catch (error) {
      return { way: 'stack', reason: `look for third-party hooks: ${firstLine(error)}` };
    }
  }
}

/** Returns the error if the kernel refuses the program; the caller does not try again. */
function loadOthers(): ThirdPartyProgram | Error {
  try {
    return new ThirdPartyProgram();
  } catch (error) {
    // A lack of descriptors is no refusal: the next look loads the program.
    if (isOutOfDescriptors(error)) throw error;
    return error as Error;
  }
}

function firstLine(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n')[0] ?? '';
}
