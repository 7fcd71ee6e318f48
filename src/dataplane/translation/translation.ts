import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { natBit } from '#dataplane/abi/settings.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { policedAmong, readPolicedNames, renamedAmong } from '#dataplane/attach/interfaces/policed-names.js';
import type { Pins } from '#dataplane/attach/pins.js';
import { Guard } from '#dataplane/guard/nftables-guard.js';
import { programId } from '#dataplane/loader/bpf-fd.js';
import { lacksModuleBtf } from '#dataplane/loader/kernel-functions.js';
import type { LoadedObject, ObjectOptions } from '#dataplane/object/loaded-object.js';
import type { NatSupport } from '#dataplane/review/nat.js';
import { ForwardJudge } from './forward-judge.js';

/**
 * Time in milliseconds after which the datapath tries again to load the forward judge (a netfilter program)
 * if the kernel has refused it.
 */
const RETRY_MS = 60_000;

/** Returns the guard (nftables rules) that the process with these pins must have made, for a comparison. */
export function guardOf(options: ConstructorParameters<typeof Guard>[0], pins: Pins): Guard {
  const guard = new Guard(options);
  guard.leaveToJudge(new ForwardJudge(pins.links).programs().length > 0);
  const policed = policedAmong(listInterfaces(), options.interfaces, readPolicedNames(pins.names));
  guard.policeRenamed(renamedAmong(policed).map(({ ifindex }) => ifindex));
  return guard;
}

/**
 * A datapath that takes over from an earlier one until it puts its first policy in force. See `Upgrade`.
 */
type Taking = { readonly awaitsFlip: boolean; readonly loaded: LoadedObject };

/** Finds the NAT rules and the netfilter programs of the node. `Forwarding` implements it. */
type NetfilterHooks = {
  translates(family: Family): boolean;
  netfilterPrograms(): readonly number[] | undefined;
};

type Options = Pick<DatapathOptions, 'forwarding' | 'markMask' | 'policeLocal' | 'servicePlane'>;

/**
 * Makes the datapath decide translated flows by their real ends (client before SNAT, server after DNAT) while
 * the node has NAT rules (D17b). A packet must never pass the guard (Weir's nftables rules) undecided. So the
 * order to switch this on is: the forward judge (a netfilter program), the guard, the ingress hook. The order
 * to switch it off is the reverse.
 */
export class Translation {
  readonly #options: Options;
  readonly #guard: Guard;
  readonly #judge: ForwardJudge;
  readonly #netfilter: NetfilterHooks;
  /**
   * Why the kernel has refused the forward judge (a netfilter program), and when to try again to load it.
   */
  #refused: { readonly reason: string; readonly untilMs: number } | null = null;

  constructor(options: Options, guard: Guard, pins: Pins, netfilter: NetfilterHooks) {
    this.#options = options;
    this.#guard = guard;
    this.#netfilter = netfilter;
    this.#judge = new ForwardJudge(pins.links, () => netfilter.netfilterPrograms());
  }

  /**
   * Makes the guard (nftables rules of Weir) pass packets to the forward judge (a netfilter program) if an
   * earlier process has attached one. Must be called before the guard is made. If the earlier process had
   * another mark mask, its forward judge does not know the mark bits of this process, and would accept each
   * packet. The guard then drops such packets until `follow`.
   */
  adopt(): void {
    const judges = this.#judge.programs().length > 0;
    this.#guard.leaveToJudge(!this.#guard.acceptsEarlier && judges);
    if (judges && natBit(this.#options.markMask) !== 0) this.#guard.separateUpstream(this.#inspects);
  }

  /**
   * Tells a datapath that has put no policy in force yet whether its predecessor decides translated flows.
   * The forward judge (netfilter program) of the predecessor stays attached until the first activation. Loads
   * the forward judge of `loaded` before that. If the load failed afterwards, the forward judge of the
   * predecessor would continue to decide by the former policy.
   */
  await({ judgeFd, slots }: LoadedObject): void {
    const translates = this.#judge.programs().length > 0;
    if (translates) judgeFd();
    slots.setTranslates('ipv4', translates);
  }

  /**
   * Switches the decision by real ends (client before SNAT, server after DNAT) on or off, for a datapath
   * whose programs are on the hooks. Without netfilter programs, or if the kernel refuses the forward judge,
   * the guard (nftables rules of Weir) drops the packets that only the forward judge could decide.
   */
  follow({ awaitsFlip, loaded }: Taking): void {
    if (awaitsFlip) this.await(loaded);
    else if (this.#isWanted(loaded)) this.#begin(loaded);
    else this.#end(loaded);
    this.#followIpv6(loaded);
  }

  /**
   * Switches the search in conntrack for packets of IPv6 on or off. The forward judge is for IPv4, so that
   * the guard drops IPv6 packets whose translation the ingress hook does not know.
   */
  #followIpv6({ slots, options }: LoadedObject): void {
    const isWanted = options.readsConntrack === true && this.#netfilter.translates('ipv6') && this.#conflict === null;
    if (slots.translates('ipv6') !== isWanted) slots.setTranslates('ipv6', isWanted);
  }

  /** Like `follow`, but does nothing unless NAT rules have appeared or vanished. */
  followRules(datapath: Taking): void {
    const { loaded } = datapath;
    if (loaded.slots.translates('ipv4') !== this.#isWanted(loaded)) this.follow(datapath);
    else this.#followIpv6(loaded);
  }

  #isWanted({ options }: LoadedObject): boolean {
    return this.#netfilter.translates('ipv4') && this.#obstacle(options) === null;
  }

  #begin(loaded: LoadedObject): void {
    if (loaded.options.judges === true) {
      try {
        const fd = loaded.judgeFd();
        this.#judge.put(fd, programId(fd));
        this.#refused = null;
      } catch (failure) {
        const reason = `the kernel refuses the forward judge: ${(failure as Error).message}`;
        this.#refused = { reason, untilMs: performance.now() + RETRY_MS };
        this.#end(loaded);
        return;
      }
    }
    this.#changeGuard(loaded.options.judges === true, this.#inspects);
    loaded.slots.setTranslates('ipv4', true);
  }

  /** Returns whether the forward judge (netfilter program) of `loaded` is attached, or need not be. */
  stands({ judgeFd, slots, options }: LoadedObject): boolean {
    if (!slots.translates('ipv4') || options.judges !== true) return true;
    return this.#judge.programs().includes(programId(judgeFd()));
  }

  /**
   * Returns the ids of the attached forward judges (Weir's netfilter programs) if the datapath itself can
   * translate the packets of established connections: it can search conntrack, and extend the time-outs of
   * connections there. Otherwise null.
   */
  judgesOf({ slots, options }: LoadedObject): readonly number[] | null {
    return slots.translates('ipv4') && options.keepMs != null ? this.#judge.programs() : null;
  }

  support(options: Pick<ObjectOptions, 'judges' | 'readsConntrack'>): NatSupport {
    const noSearch = options.readsConntrack === true ? null : noSearchReason();
    const obstacle = this.#obstacle(options);
    return { obstacle, judges: options.judges === true, noSearch, ipv6Obstacle: noSearch ?? this.#conflict };
  }

  /**
   * Returns why the datapath cannot decide translated flows by their real ends (client before SNAT, server
   * after DNAT); null if it can. Without a search in conntrack, the forward judge decides their packets,
   * except those of inspected connections.
   */
  #obstacle({ readsConntrack, judges }: Pick<ObjectOptions, 'readsConntrack' | 'judges'>): string | null {
    if (readsConntrack !== true && (judges !== true || this.#inspects)) return noSearchReason();
    if (this.#refused !== null && performance.now() < this.#refused.untilMs) return this.#refused.reason;
    return this.#conflict;
  }

  /** The setting with which the datapath decides no translated flows by their real ends; null if none. */
  get #conflict(): string | null {
    if (natBit(this.#options.markMask) === 0) return 'dataplane.mark_mask has less than four bits';
    if (this.#options.policeLocal) return 'dataplane.police_local is set';
    return this.#options.forwarding === 'direct' ? 'dataplane.forwarding is direct' : null;
  }

  #end({ slots }: LoadedObject): void {
    slots.setTranslates('ipv4', false);
    this.#changeGuard(false, false);
    this.#judge.remove();
  }

  /**
   * Whether connections to servers start at the node, because the service plane (TLS and HTTP inspection)
   * makes them.
   */
  get #inspects(): boolean {
    return this.#options.servicePlane != null;
  }

  #changeGuard(leavesToJudge: boolean, separatesUpstream: boolean): void {
    const before = { leaves: this.#guard.leavesToJudge, separates: this.#guard.separatesUpstream };
    this.#guard.leaveToJudge(leavesToJudge);
    this.#guard.separateUpstream(separatesUpstream);
    try {
      this.#guard.make();
    } catch (failure) {
      this.#guard.leaveToJudge(before.leaves);
      this.#guard.separateUpstream(before.separates);
      throw failure;
    }
  }
}

/** Returns the reason why BPF programs cannot search conntrack. Called only if they cannot. */
function noSearchReason(): string {
  return lacksModuleBtf()
    ? 'nf_conntrack is a kernel module, and only a process with CAP_SYS_ADMIN can use its functions'
    : 'the kernel module nf_conntrack was loaded after Weir, so restart Weir';
}
