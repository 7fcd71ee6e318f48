import type { MessagePort } from 'node:worker_threads';
import type { RuleNames } from './rule-names.js';

/**
 * The ports that deliver the events of one open datapath. The datapath thread may send them to the thread
 * that reads the events.
 */
export type EventSource = {
  /** Delivers batches of events as `PackedEvents`, the oldest batch first. */
  readonly batches: MessagePort;
  /** Delivers `EventFact` messages, such as the rule names of a program. */
  readonly facts: MessagePort;
  /**
   * Shared memory with one number: the count of batches that the reader has consumed. The kernel-watch thread
   * sends only a few batches ahead of this count; after that, events stay in the ring buffer.
   */
  readonly taken: Int32Array;
};

/**
 * A fact that the reader of events needs to interpret them. The sender sends each fact before the first event
 * that depends on the fact.
 */
export type EventFact =
  | { readonly kind: 'rule_names'; readonly placed: PlacedRuleNames }
  | { readonly kind: 'interfaces'; readonly names: ReadonlyMap<number, string> };

/**
 * The rule names of a program that was written to a slot. `entries` maps each rank of the program to its
 * index in the `hits` map.
 */
export type Placed = { readonly ruleNames: RuleNames; readonly generation: number; readonly entries: Uint32Array };
/** The rule names of a program that is or was in force, and its epoch. */
export type PlacedRuleNames = Placed & { readonly epoch: number };
