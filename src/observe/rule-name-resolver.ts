import type { Decider, Roster } from '#contracts/rule-names.js';
import { rankOf } from '#contracts/verdict-word.js';
import type { Rosters } from '#dataplane/events/rule-name-history.js';
import { deciderAt } from '#policy/model/rule-names.js';
import type { FindingIdentity } from './findings/finding.js';

/** Who decided, by the names of the policy; all null where nobody did, or where that policy is not known any more. */
export type NamedDecider = Pick<FindingIdentity, 'policyId' | 'sourceGroup' | 'rule' | 'decidedBy'>;

const NOBODY: NamedDecider = { policyId: null, sourceGroup: null, rule: null, decidedBy: null };

/** Names whoever an event says has decided. What was found is kept until another policy comes into force. */
export class Deciders {
  readonly #rosters: Rosters;
  #epoch: number | undefined;
  #byHit = new Map<number, { readonly check: number; readonly decider: NamedDecider }>();

  constructor(rosters: Rosters) {
    this.#rosters = rosters;
  }

  /** By an entry of `hits` and its check. */
  ofHit(hit: number, check: number): NamedDecider {
    const epoch = this.#rosters.inForce?.epoch;
    if (epoch !== this.#epoch) {
      this.#byHit = new Map();
      this.#epoch = epoch;
    }
    const known = this.#byHit.get(hit);
    if (known?.check === check) return known.decider;
    const found = hit === 0 ? undefined : this.#rosters.finder().find(hit, check);
    const decider = found === undefined ? NOBODY : nameAt(found.roster, found.rank);
    this.#byHit.set(hit, { check, decider });
    return decider;
  }

  /** By a word of the program of that generation. */
  ofWord(generation: number, word: number): NamedDecider {
    const roster = this.#rosters.ofGeneration(generation);
    return roster === undefined ? NOBODY : nameAt(roster, rankOf(word));
  }

  /** Who decided by a policy of that generation, as that calls him. */
  ofNames(generation: number, decider: Decider | null): NamedDecider {
    return decider === null ? NOBODY : named(this.#rosters.ofGeneration(generation), decider);
  }

  /** Null for what another process put in force. */
  generationOf(epoch: number): number | null {
    return this.#rosters.generationOf(epoch) ?? null;
  }
}

function nameAt(roster: Roster, rank: number): NamedDecider {
  if (rank >= roster.groups.length) return NOBODY;
  return named(roster, deciderAt(roster, rank));
}

function named(roster: Roster | undefined, decider: Decider): NamedDecider {
  return {
    policyId: roster?.policy?.id ?? null,
    sourceGroup: decider.kind === 'policy_default' ? null : decider.group,
    rule: decider.kind === 'rule' ? decider.rule : null,
    decidedBy: decider.kind,
  };
}
