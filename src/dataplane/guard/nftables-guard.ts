import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import type { Counter } from '#contracts/datapath/datapath.js';
import { guardBit } from '#dataplane/abi/settings.js';
import { BootFile, type BootGuard } from './boot-guard.js';
import { type BridgeRules, bridgeGuard, bridgeGuardStands } from './bridge-guard.js';
import { acceptedBits, forwardRules, type GuardState, markRules } from './guard-rules.js';
import { ruleComments } from './nftables.js';
import {
  IPV6_SOURCE_CHAIN,
  ipv6Sources,
  SOURCE_CHAIN,
  type SourceCheck,
  socketSources,
  sourceGuard,
  sourceGuardStands,
} from './source-guard.js';
import { noUpstreamEntry, upstreamEntry, upstreamEntryStands } from './upstream-entry.js';

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

/**
 * After this time in milliseconds, the guard (nftables rules of Weir) tries again what the kernel has
 * refused.
 */
const RETRY_MS = 60_000;

class GuardFailure extends Error {
  override readonly name = 'GuardFailure';
  readonly code = 'guard_failed';
}

/**
 * An additional chain of the guard that some kernels do not support; without it, the guard still protects
 * forwarded packets. `lines` are its nft commands. `stands` returns whether the chain is in force.
 */
type Optional = {
  readonly lines: () => readonly string[];
  readonly stands: () => boolean;
  readonly warning: string | null;
};

type GuardOptions = SourceCheck & { readonly interfaces: readonly string[]; readonly bootGuard?: BootGuard };

type NftObject = {
  readonly rule?: { readonly expr?: readonly unknown[] };
  readonly counter?: { readonly name: string; readonly packets: number; readonly bytes: number };
};

/**
 * The guard (D20a): nftables rules that let the kernel forward a packet from a policed interface only if the
 * packet mark has the datapath's bit. Third-party rules can save a mark in conntrack and restore it on a
 * later packet. So the chain `marks`, the last at prerouting, sets the bits of the mark mask from
 * `skb->priority`. The ingress hook sets that priority, and conntrack cannot restore it. The chain `guard`,
 * the first at forward, drops packets without the bit. Optional chains protect bridges and the sockets of
 * Weir's DNS proxy and service plane, and separate the service plane's connections to servers.
 */
export class Guard {
  #state: GuardState;
  readonly #optional: Optional[];
  /**
   * Whether the chains of `upstreamEntry` must exist; undefined: the guard (nftables rules of Weir) does not
   * touch them.
   */
  #separatesUpstream: boolean | undefined;
  /** The chain in the family `bridge`, which needs a kernel with CONFIG_NF_TABLES_BRIDGE. */
  readonly #bridge: Optional = {
    lines: () => bridgeGuard(bridgeRules(this.#state)),
    stands: () => bridgeGuardStands(bridgeRules(this.#state)),
    warning: null,
  };
  /** The chains of `upstreamEntry`, which need a kernel with CONFIG_NF_CONNTRACK_ZONES and nft_fib. */
  readonly #upstream: Optional = {
    lines: () =>
      this.#separatesUpstream ? upstreamEntry(GUARD_TABLE, this.#state.markMask) : noUpstreamEntry(GUARD_TABLE),
    stands: () => upstreamEntryStands(GUARD_TABLE, this.#state.markMask, this.#separatesUpstream === true),
    warning:
      'this kernel has no conntrack zones or no nft_fib: connections that the service plane inspects fail while the node translates addresses',
  };
  readonly #bootFile: BootFile | undefined;
  readonly #refused = new Set<Optional>();
  #triedAt = 0;

  constructor({ interfaces, bootGuard, ...check }: GuardOptions) {
    const { markMask } = check;
    this.#state = { interfaces, renamed: [], markMask, earlierBits: [], leavesToJudge: false };
    this.#bootFile = bootGuard && new BootFile(bootGuard);
    const ofSockets = socketSources(check);
    const ofIpv6 = (): readonly string[] => ipv6Sources(check, this.#state);
    this.#optional = [
      this.#bridge,
      {
        lines: () => sourceGuard(GUARD_TABLE, SOURCE_CHAIN, ofSockets),
        stands: () => sourceGuardStands(GUARD_TABLE, SOURCE_CHAIN, ofSockets),
        warning:
          'this kernel has no nft_socket or nft_fib: a DNS query with a forged source can reach the DNS proxy through an interface that is not policed or does not forward, unless rp_filter is set on that interface',
      },
      {
        lines: () => sourceGuard(GUARD_TABLE, IPV6_SOURCE_CHAIN, ofIpv6()),
        stands: () => sourceGuardStands(GUARD_TABLE, IPV6_SOURCE_CHAIN, ofIpv6()),
        warning:
          'this kernel has no nft_fib_ipv6: an IPv6 packet with a forged source can reach the node through a policed interface that does not forward',
      },
    ];
  }

  /** Replaces the names of the policed interfaces. The next call of `make` uses them. */
  police(interfaces: readonly string[]): void {
    this.#state = { ...this.#state, interfaces };
    // Let the next call of `make` try again to create the chains that the kernel has refused.
    this.#refused.clear();
  }

  /**
   * Replaces the indexes of the policed interfaces that were renamed and match no name of `police`. The next
   * call of `make` uses them.
   */
  policeRenamed(renamed: readonly number[]): void {
    this.#state = { ...this.#state, renamed: renamed.toSorted((a, b) => a - b) };
  }

  /**
   * Returns the warnings for the optional chains that the kernel has refused, and for the boot file. A
   * refused bridge chain causes no warning.
   */
  warnings(): string[] {
    return [...[...this.#refused].flatMap(({ warning }) => warning ?? []), ...(this.#bootFile?.warnings() ?? [])];
  }

  /**
   * Creates or replaces the chains of the guard in one transaction, so that either the old or the new rules
   * apply to each packet. If the kernel refuses the transaction, makes each optional chain in a separate
   * one. The counter `dropped` keeps its value. Also writes the boot file.
   */
  make(): void {
    if (!this.stands()) this.#replace();
    this.#writeBootFile();
  }

  /**
   * Makes the optional chains that the kernel has refused, at most once a minute. A failure can be temporary,
   * for example if the kernel has no memory.
   */
  retryRefused(now = performance.now()): void {
    if (this.#refused.size === 0 || now - this.#triedAt < RETRY_MS) return;
    for (const part of [...this.#refused]) this.#makeOptional(part);
    this.#writeBootFile();
  }

  /**
   * Write no rules for things that do not exist after a boot: the sockets of the DNS proxy and of the service
   * plane (chain `sources`), programs of an earlier process (their mark bits), and the forward judge (a
   * netfilter program). Do not use interface indexes either, because a boot changes them.
   */
  #writeBootFile(): void {
    const state = { ...this.#state, renamed: [], earlierBits: [], leavesToJudge: false };
    const bridged = this.guardsBridges() ? bridgeGuard(bridgeRules(state)) : [];
    this.#bootFile?.write([`add table ${TABLE}`, ...forwardedLines(state), ...bridged]);
  }

  /** Returns false if the kernel has refused the nftables chain that protects bridge ports. */
  guardsBridges(): boolean {
    return !this.#refused.has(this.#bridge);
  }

  #replace(): void {
    // Add the table in a transaction of its own. The kernel refuses a transaction that both activates a
    // dormant table and replaces its chains.
    makeChains([`add table ${TABLE}`]);
    const forwarded = forwardedLines(this.#state);
    try {
      makeChains([...forwarded, ...this.#optional.flatMap(({ lines }) => lines())]);
      this.#refused.clear();
    } catch {
      makeChains(forwarded);
      for (const part of this.#optional) this.#makeOptional(part);
    }
  }

  #makeOptional(part: Optional): void {
    this.#triedAt = performance.now();
    try {
      makeChains(part.lines());
      this.#refused.delete(part);
    } catch {
      this.#refused.add(part);
    }
  }

  /**
   * Returns whether the kernel has exactly the rules of this guard (nftables rules of Weir). Optional chains
   * that the kernel has refused may be missing.
   */
  stands(): boolean {
    const chainStands = (chain: Chain): boolean => {
      return JSON.stringify(ruleComments(GUARD_TABLE, chain)) === JSON.stringify(comments(chain, this.#state));
    };
    return GUARD_CHAINS.every(chainStands) && this.#optional.every((part) => this.#refused.has(part) || part.stands());
  }

  /**
   * Reads the mark bits that the guard (nftables rules of Weir) in the kernel accepts now. From the next call
   * of `make` on, this guard accepts these bits too.
   */
  acceptEarlier(): void {
    const bits = standingRules().flatMap(({ expr }) => bitIn(expr));
    this.#state = {
      ...this.#state,
      earlierBits: [...new Set(bits)].filter((bit) => bit !== guardBit(this.#state.markMask)),
    };
  }

  /**
   * Must be called after `acceptEarlier`. Returns whether the guard (nftables rules of Weir) in the kernel
   * was made with the mark mask of this process.
   */
  hasThisMask(): boolean {
    if (this.acceptsEarlier) return false;
    const found = JSON.stringify(ruleComments(GUARD_TABLE, 'marks'));
    return [true, false].some(
      (leavesToJudge) => JSON.stringify(comments('marks', { ...this.#state, leavesToJudge })) === found,
    );
  }

  /**
   * From the next call of `make` on, the guard (nftables rules of Weir) accepts only the mark bit of this
   * process.
   */
  acceptOwnOnly(): void {
    this.#state = { ...this.#state, earlierBits: [] };
  }

  /**
   * Whether this guard (nftables rules of Weir) accepts the mark bit of an earlier process, which may have
   * another mask.
   */
  get acceptsEarlier(): boolean {
    return this.#state.earlierBits.length > 0;
  }

  get leavesToJudge(): boolean {
    return this.#state.leavesToJudge;
  }

  /**
   * Sets whether the guard (nftables rules of Weir), from the next call of `make` on, passes packets that the
   * forward judge (a netfilter program) must decide, because the node translates their addresses (NAT). If
   * false, the guard drops these packets. The forward judge must be attached while the guard passes them.
   */
  leaveToJudge(leaves: boolean): void {
    this.#state = { ...this.#state, leavesToJudge: leaves };
  }

  get separatesUpstream(): boolean {
    return this.#separatesUpstream === true;
  }

  /**
   * Sets whether, from the next call of `make` on, the service plane's connections to servers have conntrack
   * entries of their own. With such entries, the node can translate the sources of these connections (SNAT).
   */
  separateUpstream(separates: boolean): void {
    if (this.#separatesUpstream === undefined) this.#optional.push(this.#upstream);
    if (this.#separatesUpstream !== separates) this.#refused.delete(this.#upstream);
    this.#separatesUpstream = separates;
  }
}

function forwardedLines(state: GuardState): string[] {
  return [
    `add counter ${TABLE} dropped`,
    ...GUARD_CHAINS.flatMap((chain) => [
      // Delete an existing chain first: it may have another priority, and the kernel cannot change the
      // priority of a chain.
      `add chain ${TABLE} ${chain}`,
      `flush chain ${TABLE} ${chain}`,
      `delete chain ${TABLE} ${chain}`,
      `add chain ${TABLE} ${chain} { type filter hook ${CHAINS[chain]}; policy accept; }`,
      ...rulesOf(chain, state).map((rule) => `add rule ${TABLE} ${chain} ${rule}`),
    ]),
  ];
}

function rulesOf(chain: Chain, state: GuardState): string[] {
  const texts = chain === 'guard' ? forwardRules(state) : markRules(state);
  const comment = `weir-${createHash('sha256').update(`${CHAINS[chain]}${texts.join()}`).digest('hex').slice(0, 12)}`;
  return texts.map((text) => `${text} comment "${comment}"`);
}

function comments(chain: Chain, state: GuardState): (string | undefined)[] {
  return rulesOf(chain, state).map((rule) => /comment "(.*)"$/.exec(rule)?.[1]);
}

function bridgeRules(state: GuardState): BridgeRules {
  const { interfaces, renamed } = state;
  return { interfaces, renamed, bits: acceptedBits(state) };
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
 * Returns the packets and bytes that the guard (nftables rules of Weir) has dropped in the families `inet`
 * and `bridge`.
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

/**
 * Removes both tables of the guard (nftables rules of Weir). Returns whether the table in the family `inet`
 * existed.
 */
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

function makeChains(lines: readonly string[]): void {
  nft(['-f', '-'], 'make the guard', lines);
}

function nft(args: readonly string[], doing: string, lines: readonly string[]): void {
  const run = spawnSync('nft', args, { input: `${lines.join('\n')}\n`, encoding: 'utf8' });
  if (run.error !== undefined) throw new GuardFailure(`${doing}: ${run.error.message}`, { cause: run.error });
  if (run.status !== 0) throw new GuardFailure(`${doing}: ${run.stderr.trim()}`);
}
