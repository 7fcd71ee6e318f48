import type { EventFact } from '#contracts/event-source.js';
import { RuleNameHistory } from './rule-name-history.js';

/** What the numbers in events stand for. Outlives the datapath that it was heard of. */
export class Surroundings {
  readonly ruleNameHistory = new RuleNameHistory();
  /** By index. */
  interfaces: ReadonlyMap<number, string> = new Map();

  learn(fact: EventFact): void {
    if (fact.kind === 'rule_names') this.ruleNameHistory.place(fact.placed);
    else this.interfaces = fact.names;
  }
}
