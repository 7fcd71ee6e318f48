import type { EventFact } from '#contracts/event-source.js';
import { Rosters } from './rule-name-history.js';

/** What the numbers in events stand for. Outlives the datapath that it was heard of. */
export class Surroundings {
  readonly rosters = new Rosters();
  /** By index. */
  interfaces: ReadonlyMap<number, string> = new Map();

  learn(fact: EventFact): void {
    if (fact.kind === 'roster') this.rosters.place(fact.placed);
    else this.interfaces = fact.names;
  }
}
