import type { EventFact } from '#contracts/datapath/event-source.js';
import { RuleNameHistory } from './rule-name-history.js';

/**
 * The rule names and interface names that the numbers in events refer to. The owner keeps this object after
 * the datapath that sent the events is closed, because consumers may still read its events.
 */
export class Surroundings {
  readonly ruleNameHistory = new RuleNameHistory();
  /** Interface index → interface name. */
  interfaces: ReadonlyMap<number, string> = new Map();

  learn(fact: EventFact): void {
    if (fact.kind === 'rule_names') this.ruleNameHistory.place(fact.placed);
    else this.interfaces = fact.names;
  }
}
