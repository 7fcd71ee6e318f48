import type { MessagePort } from 'node:worker_threads';
import type { RuleNames } from './rule-names.js';

/** Where the events of one opened datapath come from; it may be sent to the thread that takes them. */
export type EventSource = {
  /** Gives `PackedEvents`, the oldest first. */
  readonly batches: MessagePort;
  /** Gives `EventFact`s. */
  readonly facts: MessagePort;
  /** One word: batches that were taken. A few more are sent than that, then the ring fills up. */
  readonly taken: Int32Array;
};

/** Something that whoever reads events must know, told before the first event that it matters for. */
export type EventFact =
  | { readonly kind: 'rule_names'; readonly placed: PlacedRuleNames }
  | { readonly kind: 'interfaces'; readonly names: ReadonlyMap<number, string> };

/** A roster that was put in a slot, and the entry of `hits` of each of its ranks. */
export type Placed = { readonly ruleNames: RuleNames; readonly generation: number; readonly entries: Uint32Array };
/** One that is in force, or was. */
export type PlacedRuleNames = Placed & { readonly epoch: number };
