import { bitsOf, mask } from '#addresses/ip-address.js';
import {
  DENY_ONLY_MEMBER,
  type Membership,
  NO_MEMBERSHIP,
  type SelectorResolution,
} from '#contracts/kubernetes/membership.js';
import type { Address, Group } from '#contracts/policy/policy-model.js';
import { groupsOfSet, type SelectorGroups, selectorGroups } from './group-sets.js';
import { areResolved, hasDenies, isInPodNetwork, type RuleScope, staticSources } from './rule-scope.js';
import { isSameResolution } from './same-sources.js';

const KEPT_SOURCES = 4096;

/** A group that applies to a source: its index in the policy, and which of its rules apply. */
export type ScopedGroup = { readonly group: number; readonly scope: RuleScope };

/**
 * The groups whose selectors select the owner of an address (a Kubernetes object), as ascending indexes.
 * `NO_OWNER`: no object owns the address. `DENY_ONLY`: all deny rules of groups with selectors apply, and
 * none of their allow rules.
 */
export type Owner = readonly number[] | typeof NO_OWNER | typeof DENY_ONLY;
export const NO_OWNER = 'no_owner';
export const DENY_ONLY = 'deny-only';

/**
 * Finds the groups that apply to a source. The reference evaluator uses this index and the compiler does not.
 * So a proof, which compares both, also finds errors in the compiler's source tables.
 */
export class SourceIndex {
  readonly #bySource = new Map<Address, number[]>();
  /** The lengths of the source prefixes of each family, by the bits of its addresses. */
  readonly #lengths = new Map<number, Set<number>>();
  /**
   * The groups with selectors that have a deny rule or a deny default. Only these groups can apply to a
   * source with their deny rules alone.
   */
  readonly #denying: readonly number[];
  readonly #unresolved: readonly number[];
  readonly #bySelector: SelectorGroups;
  /** The groups that apply to recent sources that no Kubernetes object owns. */
  readonly #kept = new Map<Address, readonly ScopedGroup[]>();

  constructor(
    groups: readonly Group[],
    readonly resolution: SelectorResolution = NO_MEMBERSHIP.resolution,
  ) {
    for (const [index, group] of groups.entries()) {
      for (const { address, length } of staticSources(group, resolution)) {
        const bits = bitsOf(address);
        const lengths = this.#lengths.get(bits);
        if (lengths === undefined) this.#lengths.set(bits, new Set([length]));
        else lengths.add(length);
        const key = sourceKey(address, length);
        const known = this.#bySource.get(key);
        if (known === undefined) this.#bySource.set(key, [index]);
        else if (known.at(-1) !== index) known.push(index);
      }
    }
    this.#denying = denyingGroups(groups);
    this.#unresolved = this.#denying.filter((index) => !areResolved(groups[index]?.selectors ?? [], resolution));
    this.#bySelector = selectorGroups(groups, resolution);
  }

  /** Whether the index is also valid for these groups, which must have the same sources. */
  isFor(groups: readonly Group[], resolution: SelectorResolution): boolean {
    const denying = denyingGroups(groups);
    return (
      isSameResolution(this.resolution, resolution) &&
      denying.length === this.#denying.length &&
      denying.every((group, at) => group === this.#denying[at])
    );
  }

  /** Returns the groups that apply to a source, in the order of evaluation. */
  groupsOf(source: Address, { members }: Pick<Membership, 'members'> = NO_MEMBERSHIP): readonly ScopedGroup[] {
    const set = members.setOf(source);
    if (set === undefined) return this.groupsOfOwner(source, NO_OWNER);
    const isDenyOnly = set.number === DENY_ONLY_MEMBER.number;
    return this.groupsOfOwner(source, isDenyOnly ? DENY_ONLY : groupsOfSet(set, this.#bySelector));
  }

  groupsOfOwner(source: Address, owner: Owner): readonly ScopedGroup[] {
    const kept = owner === NO_OWNER ? this.#kept.get(keptKey(source)) : undefined;
    if (kept !== undefined) return kept;
    const whole = new Set<number>();
    for (const length of this.#lengths.get(bitsOf(source)) ?? []) {
      for (const group of this.#bySource.get(sourceKey(mask(source, length), length)) ?? []) whole.add(group);
    }
    if (typeof owner !== 'string') for (const group of owner) whole.add(group);
    const isDenyOnly = owner === DENY_ONLY || (owner === NO_OWNER && isInPodNetwork(this.resolution, source));
    const groups = [...new Set([...whole, ...(isDenyOnly ? this.#denying : this.#unresolved)])]
      .sort((left, right) => left - right)
      .map((group): ScopedGroup => ({ group, scope: whole.has(group) ? 'all' : 'denies' }));
    if (owner !== NO_OWNER) return groups;
    if (this.#kept.size >= KEPT_SOURCES) this.#kept.clear();
    this.#kept.set(keptKey(source), groups);
    return groups;
  }
}

function denyingGroups(groups: readonly Group[]): readonly number[] {
  return [...groups.keys()].filter((index) => {
    const group = groups[index];
    return group !== undefined && group.selectors.length > 0 && hasDenies(group);
  });
}

function sourceKey(address: Address, length: number): Address {
  return typeof address === 'number' ? address * 64 + length : (address << 8n) | BigInt(length);
}

/** Returns a key that V8 stores as a small integer for each IPv4 address, without an allocation. */
function keptKey(source: Address): Address {
  return typeof source === 'number' ? source | 0 : source;
}
