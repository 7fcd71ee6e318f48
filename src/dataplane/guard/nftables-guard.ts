import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import type { Counter } from '#contracts/datapath.js';
import { PRIORITY } from '#contracts/datapath-numbers.js';
import { guardBit, redirectBit } from '#dataplane/abi/settings.js';
import { bridgeGuard, bridgeGuardStands } from './bridge-guard.js';
import { ruleComments } from './nftables.js';
import { type SourceCheck, sourceGuard, sourceGuardStands } from './source-guard.js';

export const GUARD_TABLE = 'weir';
const FIRST = -2_147_483_648;
const LAST = 2_147_483_647;
/** The hook of each chain, and its priority there. */
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

/** A part of the guard that a kernel may not support. Forwarded packets are guarded without it. */
type Optional = { readonly lines: readonly string[]; readonly stands: () => boolean; readonly warning: string | null };

type NftObject = {
  readonly rule?: { readonly expr?: readonly unknown[] };
  readonly counter?: { readonly name: string; readonly packets: number; readonly bytes: number };
};

/**
 * The guard (D20a): a packet from a policed interface is forwarded only with the datapath's mark. Third-party
 * rules can save a mark in conntrack and restore it in a later packet. So the chain `marks`, the last at
 * prerouting, sets the bits of the mask from the packet's priority, which the ingress hook sets and conntrack
 * cannot restore. The chain `guard` is the first at forward. Two optional parts guard bridges and the node's
 * proxies.
 */
export class Guard {
  readonly #interfaces: readonly string[];
  readonly #mask: number;
  readonly #bit: number;
  readonly #optional: readonly Optional[];
  /** The optional parts that the kernel has refused. */
  readonly #refused = new Set<Optional>();
  /** Mark bits of an earlier process, accepted while its programs are still attached. */
  #earlier: readonly number[] = [];
  /** True while programs of an earlier build, which set no priority, still mark packets. */
  #trustsMarks = false;

  constructor({ interfaces, markMask, reversePath }: SourceCheck & { readonly interfaces: readonly string[] }) {
    this.#interfaces = interfaces;
    this.#mask = markMask;
    this.#bit = guardBit(markMask);
    const check = { markMask, reversePath };
    this.#optional = [
      // Needs CONFIG_NF_TABLES_BRIDGE.
      { lines: bridgeGuard(interfaces), stands: () => bridgeGuardStands(interfaces), warning: null },
      {
        lines: sourceGuard(GUARD_TABLE, check),
        stands: () => sourceGuardStands(GUARD_TABLE, check),
        warning:
          'this kernel has no nft_socket or nft_fib: a lookup with a forged source can reach the DNS proxy by an interface that is not policed or does not forward, unless rp_filter is set there',
      },
    ];
  }

  /** A warning for each optional part that the kernel has refused. */
  warnings(): string[] {
    return [...this.#refused].flatMap(({ warning }) => warning ?? []);
  }

  /** Creates or replaces the chains in one transaction; the counter keeps its value. */
  make(): void {
    if (this.stands()) return;
    // In a transaction of its own: the kernel refuses one that wakes a dormant table and replaces its chains.
    nft(['-f', '-'], 'make the guard', [`add table ${TABLE}`]);
    const forwarded = [
      `add counter ${TABLE} dropped`,
      ...GUARD_CHAINS.flatMap((chain) => [
        // Deleted first: the guard of an earlier build has another priority, and the kernel cannot change the
        // priority of a chain.
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

  /** Whether exactly these rules are in force. */
  stands(): boolean {
    const chainStands = (chain: Chain): boolean => {
      const expected = this.#rules(chain).map((rule) => /comment "(.*)"$/.exec(rule)?.[1]);
      return JSON.stringify(ruleComments(GUARD_TABLE, chain)) === JSON.stringify(expected);
    };
    return GUARD_CHAINS.every(chainStands) && this.#optional.every((part) => this.#refused.has(part) || part.stands());
  }

  /** From the next `make` on, also accepts the marks that the present guard accepts. */
  acceptEarlier(): void {
    const bits = standingRules().flatMap(({ expr }) => bitIn(expr));
    this.#trustsMarks = bits.length > 0 && (ruleComments(GUARD_TABLE, 'marks') ?? []).length === 0;
    this.#earlier = [...new Set(bits)].filter((bit) => bit !== this.#bit);
  }

  /** From the next `make` on, accepts only the mark of this process. */
  acceptOwnOnly(): void {
    this.#earlier = [];
    this.#trustsMarks = false;
  }

  #rules(chain: Chain): string[] {
    const texts = chain === 'guard' ? this.#guardRules() : this.#trustsMarks ? [] : this.#markRules();
    const comment = `weir-${createHash('sha256').update(`${CHAINS[chain]}${texts.join()}`).digest('hex').slice(0, 12)}`;
    return texts.map((text) => `${text} comment "${comment}"`);
  }

  #markRules(): string[] {
    const kept = hex(~this.#mask);
    const setTo = (bit: number): string => `meta mark set meta mark & ${kept} | ${hex(bit)} accept`;
    // The usual case first: a packet that passed the hook costs one rule here.
    return [
      `meta priority ${classOf(PRIORITY.passed)} ${setTo(this.#bit)}`,
      `meta priority ${classOf(PRIORITY.redirected)} ${setTo(redirectBit(this.#mask))}`,
      `meta mark & ${hex(this.#mask)} != 0 meta mark set meta mark & ${kept}`,
    ];
  }

  #guardRules(): string[] {
    // The mark first: a packet that the datapath allowed costs one rule here.
    return [
      ...[this.#bit, ...this.#earlier].map((bit) => `meta mark & ${hex(bit)} != 0 accept`),
      ...this.#interfaces.map((name) => `iifname "${name}" counter name "dropped" drop`),
    ];
  }
}

/** A packet's priority as nftables writes it: a colon between its halves. */
function classOf(priority: number): string {
  return `${(priority >>> 16).toString(16)}:${(priority & 0xffff).toString(16)}`;
}

/** Converts to unsigned, because `~mask` is negative. */
function hex(bits: number): string {
  return `0x${(bits >>> 0).toString(16)}`;
}

function standingRules(): NonNullable<NftObject['rule']>[] {
  const listed = spawnSync('nft', ['-j', 'list', 'chain', 'inet', 'weir', 'guard'], { encoding: 'utf8' });
  return listed.status === 0 ? objects(listed.stdout).flatMap(({ rule }) => rule ?? []) : [];
}

/** The bit of the mark that a rule tests. */
function bitIn(expr: readonly unknown[] = []): number[] {
  const found = /"&":\[\{"meta":\{"key":"mark"\}\},(\d+)\]/.exec(JSON.stringify(expr))?.[1];
  return found === undefined ? [] : [Number(found)];
}

/** The packets that both tables of the guard dropped. */
export function guardDropped(): Counter {
  const inet = 'list counter inet weir dropped';
  const list = (commands: string) => spawnSync('nft', ['-j', commands], { encoding: 'utf8' });
  const both = list(`${inet}; list counter bridge weir dropped`);
  const { status, stdout } = both.status === 0 ? both : list(inet);
  // `nft` prints one JSON document for each command.
  const counters = status === 0 ? stdout.trim().split('\n').flatMap(objects) : [];
  const sum = (key: 'packets' | 'bytes'): bigint =>
    counters.reduce((total, { counter }) => total + BigInt(counter?.[key] ?? 0), 0n);
  return { packets: sum('packets'), bytes: sum('bytes') };
}

/** Returns whether there was a guard. */
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
