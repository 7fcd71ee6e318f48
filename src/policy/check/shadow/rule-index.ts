import { itemAt } from '#arrays/read.js';
import type { Prefix, Rule } from '#contracts/policy/policy-model.js';
import { covers, decidesLookupsOf, hasAnyDestination } from '#policy/model/rules/rule-coverage.js';
import { PrefixIndex } from './prefix-index.js';

/**
 * An index of rules. `findCover` finds an earlier rule that covers a later rule. The search is bounded, so
 * `findCover` may miss a covering rule.
 */
export class RuleIndex {
  readonly #rules: Rule[] = [];
  readonly #index: PrefixIndex;

  constructor(expected: number) {
    this.#index = new PrefixIndex(expected);
  }

  add(rule: Rule): void {
    if (rule.tls !== undefined) return;
    const number = this.#rules.push(rule) - 1;
    const tag = singlePort(rule) ?? WIDE;
    if (hasAnyDestination(rule)) this.#index.add(EVERYTHING, tag, number);
    else for (const destination of rule.destinations) this.#index.add(destination, tag, number);
  }

  /**
   * Returns an earlier rule that decides every packet and every DNS lookup which `later` matches. Returns
   * undefined if the search finds no such rule.
   */
  findCover(later: Rule): Rule | undefined {
    const prefix = hasAnyDestination(later) ? EVERYTHING : (later.destinations[0] ?? EVERYTHING);
    const accept = (number: number): boolean => {
      const earlier = itemAt(this.#rules, number);
      return covers(earlier, later) && decidesLookupsOf(earlier, later);
    };
    const port = singlePort(later);
    let found = this.#index.find(prefix, WIDE, accept);
    if (found === undefined && port !== undefined) found = this.#index.find(prefix, port, accept);
    return found === undefined ? undefined : this.#rules[found];
  }
}

const EVERYTHING: Prefix = { address: 0, length: 0 };
const WIDE = 65_536;

function singlePort({ destinationPorts }: Rule): number | undefined {
  const [first] = destinationPorts;
  return destinationPorts.length === 1 && first !== undefined && first.low === first.high ? first.low : undefined;
}
