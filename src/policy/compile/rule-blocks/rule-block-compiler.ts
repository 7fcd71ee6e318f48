import { EVERY_ADDRESS } from '#addresses/ip-address.js';
import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { itemAt, u32At } from '#arrays/read.js';
import type { Family, Prefix, Rule } from '#contracts/policy/policy-model.js';
import { DESTINATION_MAP, NONE } from '#contracts/policy/program.js';
import { Sequences } from '#policy/compile/sequences.js';
import {
  membership,
  type NestingVisitor,
  type PrefixOrder,
  prefixOrder,
  walkNesting,
} from '#policy/compile/sources/prefix-nesting.js';
import type { Budget } from '#policy/model/budget.js';
import { keyRanges } from './key-ranges.js';
import { PortMapStack, RulePortMaps } from './port-map-stack.js';
import { type NamedPortMap, packed, type RuleBlock } from './rule-block.js';
import { SourcePortMaps } from './source-port-maps.js';

/** The cost of compiling one pair of a rule and a prefix. The unit is one step of a port-map merge. */
const STEPS_OF_A_MEMBER = 16;

/** Compiles sequences of rules to rule blocks. One compiler reuses its work tables for all rule blocks. */
export class RuleBlockCompiler implements NestingVisitor {
  private rules: readonly Rule[] = [];
  private order: PrefixOrder;
  private readonly rulePortMaps: RulePortMaps;
  private readonly sourcePortMaps: SourcePortMaps;
  private readonly portMaps: Sequences;
  private readonly stack: PortMapStack;
  private readonly ends = new GrowingUint32Array();
  private readonly starts = new GrowingUint32Array();
  private readonly values = new GrowingUint32Array();
  private memberships = new Float64Array(64);

  constructor(
    private readonly family: Family,
    private readonly budget: Budget,
  ) {
    this.order = prefixOrder([], family);
    this.rulePortMaps = new RulePortMaps(budget);
    this.sourcePortMaps = new SourcePortMaps(budget);
    this.portMaps = new Sequences(budget, 'port maps', 2);
    this.stack = new PortMapStack(this.rulePortMaps, this.sourcePortMaps, budget);
  }

  /**
   * Compiles rules, which must be in the order of evaluation, to a part of a rule list (rule block). Returns
   * null if no rule can match a packet.
   */
  compile(rules: readonly Rule[]): RuleBlock | null {
    const before = this.budget.used;
    this.begin(rules);
    const anywhere: number[] = [];
    const named: number[] = [];
    let count = 0;
    for (let rule = 0; rule < rules.length; rule++) {
      const { hostname, destinations } = itemAt(rules, rule);
      if (hostname !== undefined) named.push(rule);
      else if (!hasDestination(destinations)) anywhere.push(rule);
      else count = this.addMemberships(rule, count);
    }
    this.budget.steps((count + anywhere.length + named.length) * STEPS_OF_A_MEMBER);
    const map = this.destinationMap(count);
    const wildcard = this.portMapOf(anywhere);
    const names = this.namePortMaps(named);
    if (map === NONE && wildcard === NONE && names.length === 0) return null;
    this.budget.entries('rule blocks', 1);
    this.budget.entries('names', names.length);
    const best = names.length === 0 ? NONE : this.portMapOf(named);
    const { entries, steps } = this.budget.used;
    const used = { entries: entries - before.entries, steps: steps - before.steps };
    const { ends, starts, values, portMaps, sourcePortMaps } = this;
    const { classStarts } = this.order;
    return packed(
      { map, wildcard, named: best, ends, starts, values, portMaps, sourcePortMaps: sourcePortMaps.maps, classStarts },
      names,
      used,
    );
  }

  open(members: readonly number[]): void {
    this.stack.pushInside(members);
  }

  close(): void {
    this.stack.pop();
  }

  interval(start: number): void {
    const { starts, values, ends } = this;
    const portMap = this.stack.intern(this.portMaps);
    const bottom = ends.length === 0 ? 0 : u32At(ends.array, ends.length - 1);
    if (values.length > bottom && values.array[values.length - 1] === portMap) return;
    this.budget.entries('destinations', 1);
    starts.push(start);
    values.push(portMap);
  }

  private begin(rules: readonly Rule[]): void {
    this.rules = rules;
    this.rulePortMaps.clear();
    this.sourcePortMaps.maps.clear();
    this.portMaps.clear();
    this.ends.length = 0;
    this.starts.length = 0;
    this.values.length = 0;
    const prefixes: Prefix[] = [];
    for (let number = 0; number < rules.length; number++) {
      const rule = itemAt(rules, number);
      const { sourcePorts } = rule;
      this.rulePortMaps.add(
        keyRanges(rule),
        sourcePorts.length > 0 ? this.sourcePortMaps.of(sourcePorts, number) : number,
      );
      for (const prefix of prefixesOf(rule, this.family)) prefixes.push(prefix);
    }
    this.order = prefixOrder(prefixes, this.family);
  }

  private addMemberships(rule: number, count: number): number {
    const prefixes = prefixesOf(itemAt(this.rules, rule), this.family);
    const need = count + prefixes.length;
    if (need > this.memberships.length) {
      const grown = new Float64Array(need * 2);
      grown.set(this.memberships);
      this.memberships = grown;
    }
    let to = count;
    for (const prefix of prefixes) this.memberships[to++] = membership(this.order.numberOf(prefix), rule);
    return need;
  }

  private portMapOf(members: readonly number[]): number {
    if (members.length === 0) return NONE;
    this.stack.clear();
    this.stack.push(members);
    return this.stack.intern(this.portMaps);
  }

  private destinationMap(count: number): number {
    if (count === 0) return NONE;
    const { starts, values, ends } = this;
    const bottom = starts.length;
    this.stack.clear();
    walkNesting(this.order, this.memberships.subarray(0, count).sort(), this);
    if (starts.length - bottom === 1 && values.array[bottom] === NONE) {
      starts.length = bottom;
      values.length = bottom;
      return NONE;
    }
    ends.push(starts.length);
    return ends.length - 1;
  }

  private namePortMaps(named: readonly number[]): readonly NamedPortMap[] {
    const members = new Map<string, number[]>();
    for (const number of named) {
      const text = this.rules[number]?.hostname?.text ?? '';
      const others = members.get(text);
      if (others === undefined) members.set(text, [number]);
      else others.push(number);
    }
    const found: NamedPortMap[] = [];
    for (const rules of members.values()) {
      const pattern = this.rules[itemAt(rules, 0)]?.hostname;
      const portMap = this.namePortMap(rules);
      if (pattern !== undefined && portMap !== NONE) found.push({ pattern, portMap });
    }
    return found;
  }

  /**
   * Returns the number of the port map for the rules of one hostname pattern. If at least one of these rules
   * has destinations, returns `MAP` plus the number of a destination map (D10). Returns `NONE` if the rules
   * match no packet.
   */
  private namePortMap(rules: readonly number[]): number {
    if (rules.every((rule) => !hasDestination(itemAt(this.rules, rule).destinations))) return this.portMapOf(rules);
    let count = 0;
    for (const rule of rules) count = this.addMemberships(rule, count);
    this.budget.steps(count * STEPS_OF_A_MEMBER);
    const map = this.destinationMap(count);
    return map === NONE ? NONE : DESTINATION_MAP + map;
  }
}

/**
 * Returns the destination prefixes for which the compiler stores a rule. A rule with a hostname but no
 * destinations has all addresses. A rule with neither has no prefix, because the wildcard port map contains
 * the rule.
 */
function prefixesOf({ destinations, hostname }: Rule, family: Family): readonly Prefix[] {
  if (hasDestination(destinations)) return destinations;
  return hostname === undefined ? NOWHERE : EVERY_ADDRESS[family];
}

const NOWHERE: readonly Prefix[] = [];

function hasDestination(destinations: readonly Prefix[]): boolean {
  return destinations.length > 0 && destinations.every(({ length }) => length > 0);
}
