import type { MessagePort } from 'node:worker_threads';
import type { RuleNames } from './rule-names.js';

/** The source of the events of one open datapath. It may be sent to the thread that reads them. */
export type EventSource = {
  /** Delivers `PackedEvents`, the oldest first. */
  readonly batches: MessagePort;
  /** Delivers `EventFact`s. */
  readonly facts: MessagePort;
  /**
   * One word: the number of batches that were read. The sender runs only a few batches ahead, then the ring
   * fills up.
   */
  readonly taken: Int32Array;
};

/** A fact that a reader of events needs. It is sent before the first event that depends on it. */
export type EventFact =
  | { readonly kind: 'rule_names'; readonly placed: PlacedRuleNames }
  | { readonly kind: 'interfaces'; readonly names: ReadonlyMap<number, string> };

/** The rule names of a program that was put in a slot, and the index in `hits` of each of its ranks. */
export type Placed = { readonly ruleNames: RuleNames; readonly generation: number; readonly entries: Uint32Array };
/** The rule names of a program that is or was in force. */
export type PlacedRuleNames = Placed & { readonly epoch: number };
