import { type PlacedRoster, Rosters } from '#dataplane/program/rosters.js';

/** Something that whoever reads events must know, told before the first event that it matters for. */
export type EventFact =
  | { readonly kind: 'roster'; readonly placed: PlacedRoster }
  | { readonly kind: 'interfaces'; readonly names: ReadonlyMap<number, string> };

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
