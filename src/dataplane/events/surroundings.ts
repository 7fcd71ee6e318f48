import type { EventFact } from '#contracts/event-source.js';
import { RuleNameHistory } from './rule-name-history.js';

/** The names behind the numbers in events. Outlives the datapath that sent them. */
export class Surroundings {
  readonly ruleNameHistory = new RuleNameHistory();
  /** Interface names by index. */
  interfaces: ReadonlyMap<number, string> = new Map();

  learn(fact: EventFact): void {
    if (fact.kind === 'rule_names') this.ruleNameHistory.place(fact.placed);
    else this.interfaces = fact.names;
  }
}
