import { i32At, itemAt, u32At } from '#arrays/read.js';

import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import { IPPROTO, noGrants, type Packet, type Policy, type Prefix, type Rule } from '#contracts/policy/policy-model.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { mismatch } from '#policy/evaluate/mismatch.js';
import { mask, ofFamily } from '#policy/model/ip-address.js';
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
  readonly #tables: (RuleTable | undefined)[];
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
    this.#tables = groups.map(() => undefined);
    this.#firstRanks = new Uint32Array(groups.length + 1);
    for (let index = 0; index < groups.length; index++) {
      this.#firstRanks[index + 1] = u32At(this.#firstRanks, index) + ranksOf(groups, index, index + 1);
    }
  }

  get resolution(): SelectorResolution {
    return this.#sources.resolution;
  }

  /** Returns the verdict word that decides a packet from a source with this owner (a Kubernetes object). */
  wordOf(packet: Packet<number>, owner: Owner = NO_OWNER): number {
    const groups = this.#sources.groupsOfOwner(packet.source, owner);
    this.steps += groups.length;
    for (const { group, scope } of groups) {
      const table = this.#tableOf(group);
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

  #tableOf(group: number): RuleTable {
    const known = this.#tables[group];
    if (known !== undefined) return known;
    const { rules } = itemAt(this.policy.groups, group);
    const table = tables.get(rules) ?? new RuleTable(rules);
    tables.set(rules, table);
    this.#tables[group] = table;
    return table;
  }

  #word(place: RankOwner, rank: number): number {
    const { verdict, audited } = outcomeAt(this.policy, place);
    return verdictWord(rank, verdict, audited);
  }
}

/**
 * The rules of a group in the order of evaluation. Each rule has one row for each destination, or one row for
 * all destinations. A rule with a hostname has no row, because it matches only addresses to which DNS
 * resolved the name.
 */
class RuleTable {
  /** The number of rows that the last call of `find` visited. */
  steps = 0;
  readonly #rules: readonly Rule[];
  readonly #rows: Int32Array;
  /**
   * Maps a netmask, and then a masked address, to the offsets of rows. Undefined if the table has at most
   * `SHORT` rows.
   */
  readonly #index: Map<number, Map<number, number[]>> | undefined;

  constructor(rules: readonly Rule[]) {
    let count = 0;
    for (const rule of rules) count += rowsOf(rule);
    this.#rules = rules;
    this.#rows = new Int32Array(count * ROW.cells);
    this.#index = count > SHORT ? new Map() : undefined;
    let row = 0;
    for (const [number, rule] of rules.entries()) {
      const protocol = rule.tls !== undefined ? IPPROTO.tcp : rule.protocol === 'any' ? ANY_PROTOCOL : rule.protocol;
      let lowPort = rule.destinationPorts.length === 0 ? 0 : 0xffff;
      let highPort = rule.destinationPorts.length === 0 ? 0xffff : 0;
      for (const { low, high } of rule.destinationPorts) {
        lowPort = Math.min(lowPort, low);
        highPort = Math.max(highPort, high);
      }
      const destinations = ofFamily(rule.destinations, 'ipv4');
      const rows = rowsOf(rule);
      for (let at = 0; at < rows; at++, row += ROW.cells) {
        const { address, length } = destinations[at] ?? ANYWHERE;
        const bits = mask(0xffff_ffff, length);
        this.#rows[row + ROW.mask] = bits;
        this.#rows[row + ROW.address] = address;
        this.#rows[row + ROW.protocol] = protocol;
        this.#rows[row + ROW.lowPort] = lowPort;
        this.#rows[row + ROW.highPort] = highPort;
        this.#rows[row + ROW.rule] = number;
        if (this.#index !== undefined) addRow(this.#index, bits | 0, address | 0, row);
      }
    }
  }

  /**
   * Returns the index of the first rule that matches the packet and is in the scope; -1 without such a rule.
   */
  find(packet: Packet<number>, scope: RuleScope): number {
    this.steps = 0;
    return this.#index === undefined
      ? this.#findInOrder(packet, scope)
      : this.#findByDestination(this.#index, packet, scope);
  }

  #findInOrder(packet: Packet<number>, scope: RuleScope): number {
    const { length } = this.#rows;
    for (let row = 0; row < length; row += ROW.cells) {
      if (!this.#matches(row, packet, scope)) continue;
      this.steps += row / ROW.cells + 1;
      return i32At(this.#rows, row + ROW.rule);
    }
    this.steps += length / ROW.cells;
    return -1;
  }

  #findByDestination(index: Map<number, Map<number, number[]>>, packet: Packet<number>, scope: RuleScope): number {
    let best = this.#rows.length;
    this.steps += index.size;
    for (const [bits, byAddress] of index) {
      for (const row of byAddress.get(packet.destination & bits) ?? NO_ROWS) {
        if (row >= best) break;
        this.steps += 1;
        if (this.#matches(row, packet, scope)) best = row;
      }
    }
    return this.#rows[best + ROW.rule] ?? -1;
  }

  #matches(row: number, packet: Packet<number>, scope: RuleScope): boolean {
    const rows = this.#rows;
    if ((packet.destination & i32At(rows, row + ROW.mask)) !== rows[row + ROW.address]) return false;
    const protocol = i32At(rows, row + ROW.protocol);
    if (protocol !== ANY_PROTOCOL && protocol !== packet.protocol) return false;
    const port = packet.destinationPort;
    if (port < i32At(rows, row + ROW.lowPort) || port > i32At(rows, row + ROW.highPort)) return false;
    this.steps += STEPS_OF_A_RULE;
    const rule = itemAt(this.#rules, i32At(rows, row + ROW.rule));
    return isInScope(scope, rule.action) && mismatch(rule, packet, noGrants) === undefined;
  }
}

/**
 * Caches the `RuleTable` of each list of rules. A table is discarded when no policy contains its list of
 * rules.
 */
const tables = new WeakMap<readonly Rule[], RuleTable>();

/** The offsets of the numbers in a row. `cells`: how many numbers a row has. */
const ROW = { mask: 0, address: 1, protocol: 2, lowPort: 3, highPort: 4, rule: 5, cells: 6 } as const;
const ANYWHERE: Prefix<number> = { address: 0, length: 0 };
const NO_ROWS: readonly number[] = [];

/**
 * Returns the number of rows of a rule. A rule with a hostname has no row, because it matches no address
 * before DNS has resolved the name.
 */
function rowsOf({ hostname, destinations }: Rule): number {
  if (hostname !== undefined) return 0;
  return destinations.length === 0 ? 1 : ofFamily(destinations, 'ipv4').length;
}

function addRow(index: Map<number, Map<number, number[]>>, bits: number, address: number, row: number): void {
  let byAddress = index.get(bits);
  if (byAddress === undefined) {
    byAddress = new Map();
    index.set(bits, byAddress);
  }
  const rows = byAddress.get(address);
  if (rows === undefined) byAddress.set(address, [row]);
  else rows.push(row);
}
