import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import type { Counter } from '#contracts/datapath.js';
import { PRIORITY } from '#contracts/datapath-numbers.js';
import { guardBit, natBit, redirectBit } from '#dataplane/abi/settings.js';
import { bridgeGuard, bridgeGuardStands } from './bridge-guard.js';
import { ruleComments } from './nftables.js';
import { type SourceCheck, sourceGuard, sourceGuardStands } from './source-guard.js';

export const GUARD_TABLE = 'weir';
const FIRST = -2_147_483_648;
const LAST = 2_147_483_647;
/** The netfilter hook and the priority of each chain of the guard (Weir's nftables rules). */
const CHAINS = {
  marks: `prerouting priority ${LAST}`,
  guard: `forward priority ${FIRST}`,
} as const;
type Chain = keyof typeof CHAINS;
export const GUARD_CHAINS = Object.keys(CHAINS) as readonly Chain[];
const TABLE = `inet ${GUARD_TABLE}`;

class GuardFailure extends Error {
  override readonly name = 'GuardFailure';
  readonly code = 'guard_failed';
}

/**
 * An additional chain of the guard that some kernels do not support; without it, the guard still protects
 * forwarded packets. `lines` are its nft commands. `stands` returns whether the chain is in force.
 */
type Optional = { readonly lines: readonly string[]; readonly stands: () => boolean; readonly warning: string | null };

type NftObject = {
  readonly rule?: { readonly expr?: readonly unknown[] };
  readonly counter?: { readonly name: string; readonly packets: number; readonly bytes: number };
};

/**
 * The guard (D20a): nftables rules that let the kernel forward a packet from a policed interface only if the
 * packet mark has the datapath's bit. Third-party rules can save a mark in conntrack and restore it on a
 * later packet. So the chain `marks`, the last at prerouting, sets the bits of the mark mask from
 * `skb->priority`. The ingress hook sets that priority, and conntrack cannot restore it. The chain `guard`,
 * the first at forward, drops packets without the bit. Two optional chains protect bridges, and the sockets
 * of Weir's DNS proxy and service plane.
 */
export class Guard {
  #interfaces: readonly string[];
  readonly #mask: number;
  readonly #bit: number;
  #optional: readonly Optional[];
  readonly #check: SourceCheck;
  /** The optional chains that the kernel has refused. */
  readonly #refused = new Set<Optional>();
  /**
   * Mark bits that BPF programs of an earlier process set. The guard also accepts these bits while those
   * programs are still attached.
   */
  #earlier: readonly number[] = [];
  /**
   * True while BPF programs of an earlier build are attached that mark packets but do not set
   * `skb->priority`. The chain `marks` would clear the mark bits of these packets, so it must then be empty.
   */
  #trustsMarks = false;
  /** True while the forward judge is attached, which decides packets with the mark bit `natBit` alone. */
  #leavesToJudge = false;

  constructor({ interfaces, markMask, reversePath }: SourceCheck & { readonly interfaces: readonly string[] }) {
    this.#interfaces = interfaces;
    this.#mask = markMask;
    this.#bit = guardBit(markMask);
    this.#check = { markMask, reversePath };
    this.#optional = optionalChains(interfaces, this.#check);
  }

  /** Replaces the names of the policed interfaces. The next call of `make` uses them. */
  police(interfaces: readonly string[]): void {
    this.#interfaces = interfaces;
    this.#optional = optionalChains(interfaces, this.#check);
    // The next `make` tries refused chains again.
    this.#refused.clear();
  }

  /**
   * Returns the warnings for the optional chains that the kernel has refused. A refused bridge chain causes
   * no warning.
   */
  warnings(): string[] {
    return [...this.#refused].flatMap(({ warning }) => warning ?? []);
  }

  /**
   * Creates or replaces the chains of the guard in one transaction, so that either the old or the new rules
   * apply to each packet. If the kernel refuses the transaction, makes each optional chain in a separate
   * one. The counter `dropped` keeps its value.
   */
  make(): void {
    if (this.stands()) return;
    // Add the table in a transaction of its own. The kernel refuses a transaction that both activates a
    // dormant table and replaces its chains.
    nft(['-f', '-'], 'make the guard', [`add table ${TABLE}`]);
    const forwarded = [
      `add counter ${TABLE} dropped`,
      ...GUARD_CHAINS.flatMap((chain) => [
        // Delete an existing chain first: the chain of an earlier build may have another priority, and the
        // kernel cannot change the priority of a chain.
        `add chain ${TABLE} ${chain}`,
        `flush chain ${TABLE} ${chain}`,
        `delete chain ${TABLE} ${chain}`,
        `add chain ${TABLE} ${chain} { type filter hook ${CHAINS[chain]}; policy accept; }`,
        ...this.#rules(chain).map((rule) => `add rule ${TABLE} ${chain} ${rule}`),
      ]),
    ];
    const make = (lines: readonly string[]): void => nft(['-f', '-'], 'make the guard', lines);
    try {
      make([...forwarded, ...this.#optional.flatMap(({ lines }) => lines)]);
      this.#refused.clear();
    } catch {
      make(forwarded);
      for (const part of this.#optional) this.#makeOptional(part, make);
    }
  }

  #makeOptional(part: Optional, make: (lines: readonly string[]) => void): void {
    try {
      make(part.lines);
      this.#refused.delete(part);
    } catch {
      this.#refused.add(part);
    }
  }

  /**
   * Returns whether the kernel has exactly the rules of this guard. Optional chains that the kernel has
   * refused may be missing.
   */
  stands(): boolean {
    const chainStands = (chain: Chain): boolean => {
      const expected = this.#rules(chain).map((rule) => /comment "(.*)"$/.exec(rule)?.[1]);
      return JSON.stringify(ruleComments(GUARD_TABLE, chain)) === JSON.stringify(expected);
    };
    return GUARD_CHAINS.every(chainStands) && this.#optional.every((part) => this.#refused.has(part) || part.stands());
  }

  /**
   * Reads the mark bits that the guard in the kernel accepts now. From the next call of `make` on, this
   * guard accepts these bits too.
   */
  acceptEarlier(): void {
    const bits = standingRules().flatMap(({ expr }) => bitIn(expr));
    this.#trustsMarks = bits.length > 0 && (ruleComments(GUARD_TABLE, 'marks') ?? []).length === 0;
    this.#earlier = [...new Set(bits)].filter((bit) => bit !== this.#bit);
  }

  /** From the next call of `make` on, the guard accepts only the mark bit of this process. */
  acceptOwnOnly(): void {
    this.#earlier = [];
    this.#trustsMarks = false;
  }

  /** Whether this guard accepts the mark bit of an earlier process, which may have another mask. */
  get acceptsEarlier(): boolean {
    return this.#earlier.length > 0;
  }

  get leavesToJudge(): boolean {
    return this.#leavesToJudge;
  }

  /**
   * From the next call of `make` on, the guard lets packets whose addresses the node translates go on to the
   * forward judge, or drops them again. The forward judge must be attached while the guard does so.
   */
  leaveToJudge(leaves: boolean): void {
    this.#leavesToJudge = leaves;
  }

  #rules(chain: Chain): string[] {
    const texts = chain === 'guard' ? this.#guardRules() : this.#trustsMarks ? [] : this.#markRules();
    const comment = `weir-${createHash('sha256').update(`${CHAINS[chain]}${texts.join()}`).digest('hex').slice(0, 12)}`;
    return texts.map((text) => `${text} comment "${comment}"`);
  }

  #markRules(): string[] {
    const kept = hex(~this.#mask);
    const setTo = (bit: number): string => `meta mark set meta mark & ${kept} | ${hex(bit)} accept`;
    // The rule for passed packets is the first, because most packets match it. The kernel then evaluates
    // only one rule of this chain for them.
    return [
      `meta priority ${classOf(PRIORITY.passed)} ${setTo(this.#bit)}`,
      // Kernels without netfilter programs pass replies of translated flows, but have no forward judge.
      `meta priority ${classOf(PRIORITY.translated)} ${setTo(this.#bit | natBit(this.#mask))}`,
      `meta priority ${classOf(PRIORITY.redirected)} ${setTo(redirectBit(this.#mask))}`,
      ...(this.#leavesToJudge
        ? [`meta nfproto ipv4 meta priority ${classOf(PRIORITY.pending)} ${setTo(natBit(this.#mask))}`]
        : []),
      `meta mark & ${hex(this.#mask)} != 0 meta mark set meta mark & ${kept}`,
    ];
  }

  #guardRules(): string[] {
    // The rules for the mark are the first, because most packets have the mark. The kernel then evaluates
    // only one rule of this chain for them.
    const pending = `meta mark & ${hex(natBit(this.#mask))} != 0`;
    const each = (rule: string): string[] => this.#interfaces.map((name) => `iifname "${name}" ${rule}`);
    return [
      ...[this.#bit, ...this.#earlier].map((bit) => `meta mark & ${hex(bit)} != 0 accept`),
      ...(this.#leavesToJudge ? each(`meta nfproto ipv4 ${pending} accept`) : []),
      ...each('counter name "dropped" drop'),
      // A packet from a tunnel has the mark of the packet that carried it. It came in by an interface without
      // policy, so the forward judge must not decide it.
      ...(this.#leavesToJudge ? [`${pending} meta mark set meta mark & ${hex(~this.#mask)}`] : []),
    ];
  }
}

function optionalChains(interfaces: readonly string[], check: SourceCheck): readonly Optional[] {
  return [
    // This chain needs a kernel with CONFIG_NF_TABLES_BRIDGE.
    { lines: bridgeGuard(interfaces), stands: () => bridgeGuardStands(interfaces), warning: null },
    {
      lines: sourceGuard(GUARD_TABLE, check),
      stands: () => sourceGuardStands(GUARD_TABLE, check),
      warning:
        'this kernel has no nft_socket or nft_fib: a DNS query with a forged source can reach the DNS proxy through an interface that is not policed or does not forward, unless rp_filter is set on that interface',
    },
  ];
}

/**
 * Returns a value of `skb->priority` in the notation of nftables: two 16-bit halves in hexadecimal,
 * separated by a colon.
 */
function classOf(priority: number): string {
  return `${(priority >>> 16).toString(16)}:${(priority & 0xffff).toString(16)}`;
}

/** Returns 32 bits in hexadecimal. `>>> 0` makes the number unsigned, because `~mask` is negative. */
function hex(bits: number): string {
  return `0x${(bits >>> 0).toString(16)}`;
}

function standingRules(): NonNullable<NftObject['rule']>[] {
  const listed = spawnSync('nft', ['-j', 'list', 'chain', 'inet', 'weir', 'guard'], { encoding: 'utf8' });
  return listed.status === 0 ? objects(listed.stdout).flatMap(({ rule }) => rule ?? []) : [];
}

/**
 * Returns a list with the mark bit that an nftables rule accepts; an empty list if the rule does anything
 * else, or tests more than the mark.
 */
function bitIn(expr: readonly unknown[] = []): number[] {
  const [test, action, ...more] = expr;
  if (more.length > 0 || !JSON.stringify(action).includes('"accept"')) return [];
  const found = /"&":\[\{"meta":\{"key":"mark"\}\},(\d+)\]/.exec(JSON.stringify(test))?.[1];
  return found === undefined ? [] : [Number(found)];
}

/**
 * Returns the number of packets and bytes that the guard's tables, in the families `inet` and `bridge`, have
 * dropped.
 */
export function guardDropped(): Counter {
  const inet = 'list counter inet weir dropped';
  const list = (commands: string) => spawnSync('nft', ['-j', commands], { encoding: 'utf8' });
  const both = list(`${inet}; list counter bridge weir dropped`);
  const { status, stdout } = both.status === 0 ? both : list(inet);
  // For each command, `nft` prints one JSON document on one line of text.
  const counters = status === 0 ? stdout.trim().split('\n').flatMap(objects) : [];
  const sum = (key: 'packets' | 'bytes'): bigint =>
    counters.reduce((total, { counter }) => total + BigInt(counter?.[key] ?? 0), 0n);
  return { packets: sum('packets'), bytes: sum('bytes') };
}

/** Removes both tables of the guard. Returns whether the table in the family `inet` existed. */
export function removeGuard(): boolean {
  const stood = spawnSync('nft', ['list', 'table', 'inet', 'weir']).status === 0;
  nft(['-f', '-'], 'remove the guard', [
    `add table ${TABLE}`,
    `delete table ${TABLE}`,
    'add table bridge weir',
    'delete table bridge weir',
  ]);
  return stood;
}

function objects(json: string): NftObject[] {
  return (JSON.parse(json) as { nftables: NftObject[] }).nftables;
}

function nft(args: readonly string[], doing: string, lines: readonly string[]): void {
  const run = spawnSync('nft', args, { input: `${lines.join('\n')}\n`, encoding: 'utf8' });
  if (run.error !== undefined) throw new GuardFailure(`${doing}: ${run.error.message}`, { cause: run.error });
  if (run.status !== 0) throw new GuardFailure(`${doing}: ${run.stderr.trim()}`);
}
