import { covers, EVERY_ADDRESS, familyOf, mask, ofFamily } from '#addresses/ip-address.js';
import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { i32At, itemAt, u32At } from '#arrays/read.js';

import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import {
  type Address,
  type Family,
  IPPROTO,
  noGrants,
  type Packet,
  type Policy,
  type Prefix,
  type Rule,
} from '#contracts/policy/policy-model.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { mismatch } from '#policy/evaluate/mismatch.js';
import { ranksOf } from '#policy/model/rules/group-change.js';
import { outcomeAt, type RankOwner } from '#policy/model/rules/rank.js';
import { isInScope, type RuleScope } from '#policy/model/sources/rule-scope.js';
import { NO_OWNER, type Owner, type SourceIndex } from '#policy/model/sources/source-index.js';

const ANY_PROTOCOL = 256;
/**
 * The maximum number of rows that `find` searches one after the other. A table with more rows has an index.
 */
const SHORT = 128;
const STEPS_OF_A_GROUP = 4;
const STEPS_OF_A_RULE = 16;

/**
 * Evaluates many packets against a policy, and ignores grants (addresses that DNS answers opened). Finds the
 * group of a packet by its source, skips the rules whose destination, protocol or port cannot match, and
 * calls `mismatch` for each other rule. Reads the policy and not the compiled tables, because a proof
 * compares the results of both.
 */
export class ReferenceWalk {
  /**
   * The work of this object so far. One step stands for the visit of one table row, which takes some
   * nanoseconds.
   */
  steps = 0;
  readonly #tables: Readonly<Record<Family, (RuleTable | undefined)[]>>;
  /**
   * The rank (position in the policy) of the first rule in each group, and last that of the policy default.
   */
  readonly #firstRanks: Uint32Array;

  readonly #sources: SourceIndex;

  /**
   * `sources` is an index of the groups in `policy`, or of an earlier policy whose groups have the same
   * sources.
   */
  constructor(
    readonly policy: Policy,
    sources: SourceIndex,
  ) {
    const { groups } = policy;
    this.#sources = sources;
    this.#tables = { ipv4: groups.map(() => undefined), ipv6: groups.map(() => undefined) };
    this.#firstRanks = new Uint32Array(groups.length + 1);
    for (let index = 0; index < groups.length; index++) {
      this.#firstRanks[index + 1] = u32At(this.#firstRanks, index) + ranksOf(groups, index, index + 1);
    }
  }

  get resolution(): SelectorResolution {
    return this.#sources.resolution;
  }

  /** Returns the verdict word that decides a packet from a source with this owner (a Kubernetes object). */
  wordOf(packet: Packet, owner: Owner = NO_OWNER): number {
    const family = familyOf(packet.source);
    const groups = this.#sources.groupsOfOwner(packet.source, owner);
    this.steps += groups.length;
    for (const { group, scope } of groups) {
      const table = this.#tableOf(group, family);
      const rule = table.find(packet, scope);
      this.steps += table.steps + STEPS_OF_A_GROUP;
      if (rule >= 0) return this.#word({ kind: 'rule', group, rule }, u32At(this.#firstRanks, group) + rule);
      const { defaultAction, rules } = itemAt(this.policy.groups, group);
      if (defaultAction !== undefined && isInScope(scope, defaultAction)) {
        return this.#word({ kind: 'group_default', group }, u32At(this.#firstRanks, group) + rules.length);
      }
    }
    return this.#word({ kind: 'policy_default' }, u32At(this.#firstRanks, this.#firstRanks.length - 1));
  }

  #tableOf(group: number, family: Family): RuleTable {
    const known = this.#tables[family][group];
    if (known !== undefined) return known;
    const { rules } = itemAt(this.policy.groups, group);
    const table = tables[family].get(rules) ?? new RuleTable(rules, family);
    tables[family].set(rules, table);
    this.#tables[family][group] = table;
    return table;
  }

  #word(place: RankOwner, rank: number): number {
    const { verdict, audited } = outcomeAt(this.policy, place);
    return verdictWord(rank, verdict, audited);
  }
}

/**
 * The rules of a group in the order of evaluation, for packets of one family. Each rule has one row for each
 * destination of this family, or one row for all destinations. A rule with a hostname has no row, because it
 * matches only addresses to which DNS resolved the name.
 */
class RuleTable {
  /** The number of table rows that the last call of `find` examined. */
  steps = 0;
  readonly #rules: readonly Rule[];
  readonly #rows: Int32Array;
  /** The destination prefix of each row. */
  readonly #prefixes: readonly Prefix[];
  /**
   * Maps a prefix length, and then a masked address, to the numbers of rows. Undefined if the table has at
   * most `SHORT` rows.
   */
  readonly #index: Map<number, Map<Address, number[]>> | undefined;

  constructor(rules: readonly Rule[], family: Family) {
    const prefixes: Prefix[] = [];
    const rows = new GrowingUint32Array(rules.length * ROW.cells);
    for (const [number, rule] of rules.entries()) {
      const protocol = rule.tls !== undefined ? IPPROTO.tcp : rule.protocol === 'any' ? ANY_PROTOCOL : rule.protocol;
      let lowPort = rule.destinationPorts.length === 0 ? 0 : 0xffff;
      let highPort = rule.destinationPorts.length === 0 ? 0xffff : 0;
      for (const { low, high } of rule.destinationPorts) {
        lowPort = Math.min(lowPort, low);
        highPort = Math.max(highPort, high);
      }
      for (const prefix of prefixesOf(rule, family)) {
        prefixes.push(prefix);
        for (const cell of [protocol, lowPort, highPort, number]) rows.push(cell);
      }
    }
    this.#rules = rules;
    this.#prefixes = prefixes;
    this.#rows = new Int32Array(rows.trimmed());
    this.#index = prefixes.length > SHORT ? indexOf(prefixes) : undefined;
  }

  /**
   * Returns the index of the first rule that matches the packet and is in the scope; -1 without such a rule.
   */
  find(packet: Packet, scope: RuleScope): number {
    this.steps = 0;
    return this.#index === undefined
      ? this.#findInOrder(packet, scope)
      : this.#findByDestination(this.#index, packet, scope);
  }

  #findInOrder(packet: Packet, scope: RuleScope): number {
    const { length } = this.#prefixes;
    for (let row = 0; row < length; row++) {
      if (!covers(itemAt(this.#prefixes, row), packet.destination) || !this.#matches(row, packet, scope)) continue;
      this.steps += row + 1;
      return i32At(this.#rows, row * ROW.cells + ROW.rule);
    }
    this.steps += length;
    return -1;
  }

  #findByDestination(index: Map<number, Map<Address, number[]>>, packet: Packet, scope: RuleScope): number {
    let best = this.#prefixes.length;
    this.steps += index.size;
    for (const [length, byAddress] of index) {
      for (const row of byAddress.get(mask(packet.destination, length)) ?? NO_ROWS) {
        if (row >= best) break;
        this.steps += 1;
        if (this.#matches(row, packet, scope)) best = row;
      }
    }
    return this.#rows[best * ROW.cells + ROW.rule] ?? -1;
  }

  /** Whether a row whose prefix covers the destination matches the packet. */
  #matches(row: number, packet: Packet, scope: RuleScope): boolean {
    const rows = this.#rows;
    const first = row * ROW.cells;
    const protocol = i32At(rows, first + ROW.protocol);
    if (protocol !== ANY_PROTOCOL && protocol !== packet.protocol) return false;
    const port = packet.destinationPort;
    if (port < i32At(rows, first + ROW.lowPort) || port > i32At(rows, first + ROW.highPort)) return false;
    this.steps += STEPS_OF_A_RULE;
    const rule = itemAt(this.#rules, i32At(rows, first + ROW.rule));
    return isInScope(scope, rule.action) && mismatch(rule, packet, noGrants) === undefined;
  }
}

/**
 * Caches the `RuleTable` of each list of rules. A table is discarded when no policy contains its list of
 * rules.
 */
const tables: Readonly<Record<Family, WeakMap<readonly Rule[], RuleTable>>> = {
  ipv4: new WeakMap(),
  ipv6: new WeakMap(),
};

/** The offsets of the fields of a row. `cells`: the number of fields. */
const ROW = { protocol: 0, lowPort: 1, highPort: 2, rule: 3, cells: 4 } as const;
const NO_ROWS: readonly number[] = [];

/**
 * Returns the prefixes of the rows of a rule. A rule with a hostname has no row, because it matches no
 * address before DNS has resolved the name.
 */
function prefixesOf({ hostname, destinations }: Rule, family: Family): readonly Prefix[] {
  if (hostname !== undefined) return [];
  return destinations.length === 0 ? EVERY_ADDRESS[family] : ofFamily(destinations, family);
}

function indexOf(prefixes: readonly Prefix[]): Map<number, Map<Address, number[]>> {
  const index = new Map<number, Map<Address, number[]>>();
  for (const [row, { address, length }] of prefixes.entries()) {
    let byAddress = index.get(length);
    if (byAddress === undefined) {
      byAddress = new Map();
      index.set(length, byAddress);
    }
    const rows = byAddress.get(address);
    if (rows === undefined) byAddress.set(address, [row]);
    else rows.push(row);
  }
  return index;
}
