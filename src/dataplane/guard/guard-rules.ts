import { PRIORITY } from '#contracts/datapath/datapath-numbers.js';
import { guardBit, natBit, redirectBit } from '#dataplane/abi/settings.js';

/**
 * Returns a value of `skb->priority` in the notation of nftables: two 16-bit halves in hexadecimal,
 * separated by a colon.
 */
export function priorityClass(priority: number): string {
  return `${(priority >>> 16).toString(16)}:${(priority & 0xffff).toString(16)}`;
}

/** Returns 32 bits in hexadecimal. `>>> 0` makes the number unsigned, because `~mask` is negative. */
function hex(bits: number): string {
  return `0x${(bits >>> 0).toString(16)}`;
}

/** Returns the nftables expression for "the packet mark has one of these bits". */
export function anyBit(bits: number): string {
  return `meta mark & ${hex(bits)} != 0`;
}

export type GuardState = {
  readonly interfaces: readonly string[];
  /**
   * Indexes of policed interfaces that were renamed, so that their name matches none of `interfaces`. The
   * rules test the index, because a change of the name does not change the index.
   */
  readonly renamed: readonly number[];
  readonly markMask: number;
  /**
   * Mark bits that BPF programs of an earlier process set. The guard (nftables rules of Weir) also accepts
   * these bits while those programs are still attached.
   */
  readonly earlierBits: readonly number[];
  /**
   * True while the forward judge is attached: the netfilter program that decides packets which have only the
   * mark bit `natBit`.
   */
  readonly leavesToJudge: boolean;
};

export function acceptedBits({ markMask, earlierBits }: GuardState): number[] {
  return [guardBit(markMask), ...earlierBits];
}

/** Returns the rules of the chain `marks`, which sets the bits of the mark mask from `skb->priority`. */
export function markRules({ markMask, leavesToJudge }: GuardState): string[] {
  const kept = hex(~markMask);
  const setTo = (bit: number): string => `meta mark set meta mark & ${kept} | ${hex(bit)} accept`;
  // The rule for passed packets is the first, because most packets match it. The kernel then evaluates
  // only one rule of this chain for them.
  return [
    `meta priority ${priorityClass(PRIORITY.passed)} ${setTo(guardBit(markMask))}`,
    // Add this rule even if `leavesToJudge` is false: on a kernel without netfilter programs, the ingress
    // hook still passes replies of translated flows with this priority.
    `meta priority ${priorityClass(PRIORITY.translated)} ${setTo(guardBit(markMask) | natBit(markMask))}`,
    `meta priority ${priorityClass(PRIORITY.redirected)} ${setTo(redirectBit(markMask))}`,
    ...(leavesToJudge
      ? [`meta nfproto ipv4 meta priority ${priorityClass(PRIORITY.pending)} ${setTo(natBit(markMask))}`]
      : []),
    `${anyBit(markMask)} meta mark set meta mark & ${kept}`,
  ];
}

/** Returns one nftables expression for each policed interface: "the packet arrived there". */
export function arrivals({ interfaces, renamed }: Pick<GuardState, 'interfaces' | 'renamed'>): string[] {
  return [...interfaces.map((name) => `iifname "${name}"`), ...renamed.map((ifindex) => `iif ${ifindex}`)];
}

/** Returns the rules of the chain `guard`, which drops packets from policed interfaces without the mark. */
export function forwardRules(state: GuardState): string[] {
  const { markMask, leavesToJudge } = state;
  // The rules for the mark are the first, because most packets have the mark. The kernel then evaluates
  // only one rule of this chain for them.
  const pending = anyBit(natBit(markMask));
  const each = (rule: string): string[] => arrivals(state).map((arrival) => `${arrival} ${rule}`);
  return [
    ...acceptedBits(state).map((bit) => `${anyBit(bit)} accept`),
    ...(leavesToJudge ? each(`meta nfproto ipv4 ${pending} accept`) : []),
    ...each('counter name "dropped" drop'),
    // A decapsulated packet from a tunnel still has the mark of the outer packet. It came in by an interface
    // without policy, so the forward judge (a netfilter program) must not decide it: clear the mark bits.
    ...(leavesToJudge ? [`${pending} meta mark set meta mark & ${hex(~markMask)}`] : []),
  ];
}
