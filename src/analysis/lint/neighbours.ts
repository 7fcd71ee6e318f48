import type { Arrangement } from './arrangement.js';
import type { RuleNeighbours } from './rule-neighbours.js';

/** The neighbours of a rule in each family. A rule decides something if it decides a flow of any family. */
export class Neighbours {
  constructor(private readonly families: readonly RuleNeighbours[]) {}

  /** The numbers of all rules that match a flow of the rule, ascending. */
  get touching(): readonly number[] {
    return joined(this.families.map(({ touching }) => touching));
  }

  /** The numbers of the rules of the same group that match a flow of the rule, ascending. */
  get ofOwnGroup(): readonly number[] {
    return joined(this.families.map(({ ofOwnGroup }) => ofOwnGroup));
  }

  /** Whether the rule decides a flow or a DNS lookup. */
  isReached(arrangement: Arrangement): boolean {
    return this.families.some((family) => family.isReached(arrangement));
  }

  /**
   * Whether all flows and DNS lookups are decided alike in two arrangements that differ only in this rule.
   */
  isAlike(one: Arrangement, other: Arrangement): boolean {
    return this.families.every((family) => family.isAlike(one, other));
  }

  /** See `RuleNeighbours`. */
  isInConflictWith(earlier: number, arrangement: Arrangement): boolean {
    return this.families.some(
      (family) => family.ofOwnGroup.includes(earlier) && family.isInConflictWith(earlier, arrangement),
    );
  }

  /** See `RuleNeighbours`. */
  deciders(arrangement: Arrangement, isWhole: boolean): ReadonlySet<number | null> {
    return new Set(this.families.flatMap((family) => [...family.deciders(arrangement, isWhole)]));
  }
}

function joined(lists: readonly (readonly number[])[]): readonly number[] {
  const [first = []] = lists;
  return lists.length === 1 ? first : [...new Set(lists.flat())].sort((left, right) => left - right);
}
