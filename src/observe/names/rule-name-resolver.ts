import { textAt } from '#arrays/texts.js';
import type { OwnerName } from '#contracts/kubernetes/address-owner.js';
import { type AddressKey, addressKey } from '#contracts/policy/address-words.js';
import type { Address } from '#contracts/policy/policy-model.js';
import type { Decider, RuleNames } from '#contracts/policy/rule-names.js';
import { rankOf } from '#contracts/policy/verdict-word.js';
import type { RuleNameHistory } from '#dataplane/events/rule-name-history.js';
import type { FindingIdentity } from '#observe/findings/finding.js';
import { deciderAt } from '#policy/model/rules/rule-names.js';
import { groupsWith, NAMED_GROUPS } from '#policy/model/sources/group-sources.js';

/**
 * The rule or default that decided an event, as names from the policy. All fields are null if no policy was
 * evaluated, or if the rule names of the policy are no longer kept.
 */
export type NamedDecider = Pick<FindingIdentity, 'policyId' | 'sourceGroup' | 'rule' | 'decidedBy'>;

/** The number of addresses whose groups are cached. */
const CACHED_SOURCES = 16_384;

const UNKNOWN_DECIDER: NamedDecider = { policyId: null, sourceGroup: null, rule: null, decidedBy: null };

/** Returns the field `sourceGroups` of a finding. Findings that no default of a policy caused lack it. */
export function sourceGroupsOf(
  resolver: RuleNameResolver,
  ...of: Parameters<RuleNameResolver['groupsOfSource']>
): { readonly sourceGroups?: readonly string[] | null } {
  const sourceGroups = resolver.groupsOfSource(...of);
  return sourceGroups === undefined ? {} : { sourceGroups };
}

/**
 * Finds the names of the rule or default that decided an event. Results of `ofHit` are cached until another
 * program is in force.
 */
export class RuleNameResolver {
  readonly #ruleNameHistory: RuleNameHistory;
  #epoch: number | undefined;
  #byHit = new Map<number, { readonly check: number; readonly decider: NamedDecider }>();
  /** For each result that names the default of a policy, the rule names of this policy. */
  readonly #ofDefaults = new WeakMap<NamedDecider, RuleNames>();
  #cached: RuleNames | undefined;
  readonly #bySource = new Map<AddressKey, readonly string[]>();

  constructor(ruleNameHistory: RuleNameHistory) {
    this.#ruleNameHistory = ruleNameHistory;
  }

  /**
   * Returns the names of the rule whose hits are counted at index `hit` of the BPF map `hits`. `check` is a
   * part of the rule's identity. If another rule now uses this index, all names are null.
   */
  ofHit(hit: number, check: number): NamedDecider {
    const epoch = this.#ruleNameHistory.inForce?.epoch;
    if (epoch !== this.#epoch) {
      this.#byHit = new Map();
      this.#epoch = epoch;
    }
    const known = this.#byHit.get(hit);
    if (known?.check === check) return known.decider;
    const found = hit === 0 ? undefined : this.#ruleNameHistory.finder().find(hit, check);
    const decider = found === undefined ? UNKNOWN_DECIDER : this.#nameAt(found.ruleNames, found.rank);
    this.#byHit.set(hit, { check, decider });
    return decider;
  }

  /**
   * Returns the names of the rule or default that decided. The verdict word `word` contains its rank
   * (position) in the policy with this generation (activation number).
   */
  ofWord(generation: number, word: number): NamedDecider {
    const ruleNames = this.#ruleNameHistory.ofGeneration(generation);
    return ruleNames === undefined ? UNKNOWN_DECIDER : this.#nameAt(ruleNames, rankOf(word));
  }

  /**
   * Converts `decider`, the rule or default that decided, to the names of its group and rule. Adds the id of
   * the policy with this generation.
   */
  ofNames(generation: number, decider: Decider | null): NamedDecider {
    return decider === null ? UNKNOWN_DECIDER : this.#named(this.#ruleNameHistory.ofGeneration(generation), decider);
  }

  /**
   * Returns the generation of the program with this epoch (the generation as the datapath counts it). Returns
   * null if another process activated the program, or if its rule names were already discarded.
   */
  generationOf(epoch: number): number | null {
    return this.#ruleNameHistory.generationOf(epoch) ?? null;
  }

  /**
   * Returns the ids of the groups whose sources contain an address, if the default of a policy decided:
   * `decider` must be a result of this object. At most the first `NAMED_GROUPS` groups in the order of
   * evaluation, of the policy whose default decided. Undefined if something else decided. Null if the groups
   * are not known: the policy has Kubernetes selectors, and a Kubernetes object owns the address.
   */
  groupsOfSource(
    decider: NamedDecider,
    source: Address | null,
    owner: OwnerName | null,
  ): readonly string[] | null | undefined {
    const ruleNames = this.#ofDefaults.get(decider);
    if (ruleNames === undefined || source === null) return undefined;
    if (owner !== null && ruleNames.sources.hasSelectors) return null;
    if (this.#cached !== ruleNames || this.#bySource.size >= CACHED_SOURCES) this.#bySource.clear();
    this.#cached = ruleNames;
    const key = addressKey(source);
    const known = this.#bySource.get(key);
    if (known !== undefined) return known;
    const groups = groupsWith(ruleNames.sources, source, NAMED_GROUPS).map((group) =>
      textAt(ruleNames.groupIds, group),
    );
    this.#bySource.set(key, groups);
    return groups;
  }

  #nameAt(ruleNames: RuleNames, rank: number): NamedDecider {
    if (rank >= ruleNames.groups.length) return UNKNOWN_DECIDER;
    return this.#named(ruleNames, deciderAt(ruleNames, rank));
  }

  #named(ruleNames: RuleNames | undefined, decider: Decider): NamedDecider {
    const named = {
      policyId: ruleNames?.policy?.id ?? null,
      sourceGroup: decider.kind === 'policy_default' ? null : decider.group,
      rule: decider.kind === 'rule' ? decider.rule : null,
      decidedBy: decider.kind,
    };
    if (decider.kind === 'policy_default' && ruleNames !== undefined) this.#ofDefaults.set(named, ruleNames);
    return named;
  }
}
