import type { DatapathChange, ForwardingNow } from '#contracts/datapath.js';
import type { DatapathOptions } from '#contracts/datapath-options.js';
import type { Slots } from '#dataplane/activate/slots.js';
import type { Hooks } from '#dataplane/attach/hooks.js';
import type { Guard } from '#dataplane/guard/nftables-guard.js';
import { isOutOfDescriptors } from '#libc/kernel-failure.js';
import { thirdPartyFilter } from './third-party-filters.js';
import { type ThirdPartyHook, ThirdPartyProgram } from './third-party-hooks.js';

/** How long packets are sent at once after a look that found nobody: the longest that somebody can be passed by. */
const DIRECT_FOR_NS = 3_000_000_000n;
/** What `direct` writes, which no clock comes to. */
export const DIRECT_ALWAYS = 0xffff_ffff_ffff_ffffn;

const UNSEEN: ForwardingNow = { way: 'stack', reason: 'nobody has looked yet' };
const CONFIGURED: Readonly<Record<'stack' | 'direct', ForwardingNow>> = {
  stack: { way: 'stack', reason: 'as configured' },
  direct: { way: 'direct', reason: 'as configured' },
};
export const ALONE: ForwardingNow = { way: 'direct', reason: 'nobody else has a say' };

/** Says to the kernel which way the packets that pass go on. */
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

  /** Whatever an earlier process said does not hold any more. */
  begin(slots: Slots): void {
    slots.setDirectUntil(this.options.forwarding === 'direct' ? DIRECT_ALWAYS : 0n);
  }

  /** To be called often enough, and whenever somebody may have come or gone. Answers what changed. */
  look(slots: Slots): DatapathChange[] {
    if (this.options.forwarding !== 'auto') return [];
    const before = this.#now;
    const beganNs = process.hrtime.bigint();
    this.#now = this.#lookForOthers();
    slots.setDirectUntil(this.#now.way === 'direct' ? beganNs + DIRECT_FOR_NS : 0n);
    return before.reason === this.#now.reason ? [] : [{ type: 'forwarding_changed', ...this.#now }];
  }

  /** Nobody looks any more. What is configured stays. */
  end(slots: Slots): void {
    if (this.options.forwarding === 'auto') slots.setDirectUntil(0n);
  }

  close(): void {
    if (this.#program instanceof ThirdPartyProgram) this.#program.close();
    this.#program = undefined;
    if (this.options.forwarding === 'auto') this.#now = UNSEEN;
  }

  /** Everybody who has a say; none where the kernel cannot be asked. */
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
      return { way: 'stack', reason: `the look for others failed: ${firstLine(error)}` };
    }
  }
}

/** A kernel that refuses it is not asked again. */
function loadOthers(): ThirdPartyProgram | Error {
  try {
    return new ThirdPartyProgram();
  } catch (error) {
    // It was not refused: the next look loads it.
    if (isOutOfDescriptors(error)) throw error;
    return error as Error;
  }
}

function firstLine(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n')[0] ?? '';
}
