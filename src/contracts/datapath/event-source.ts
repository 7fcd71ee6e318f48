import type { MessagePort } from 'node:worker_threads';
import type { RuleNames } from '#contracts/policy/rule-names.js';

/**
 * The message ports that deliver the events of one opened datapath. The main thread may send them to another
 * thread, which then reads the events.
 */
export type EventSource = {
  /** Delivers batches of events as `PackedEvents`, the oldest batch first. */
  readonly batches: MessagePort;
  /** Delivers `EventFact` messages, such as the rule names of a policy. */
  readonly facts: MessagePort;
  /**
   * Shared memory with one number: how many batches the reader has consumed. If the kernel-watch thread is
   * several batches ahead of this number, it leaves further events in the ring buffer.
   */
  readonly taken: Int32Array;
};

/**
 * Information that the reader of events needs to interpret the events. The datapath thread sends it before
 * the first event for which the reader needs it.
 */
export type EventFact =
  | { readonly kind: 'rule_names'; readonly placed: FlippedRuleNames }
  | { readonly kind: 'interfaces'; readonly names: ReadonlyMap<number, string> };

/**
 * The rule names of a compiled policy that was written to a program slot. `entries`: for each rank (rule or
 * default) of that policy, the index of its counter in the map `hits`.
 */
export type StagedRuleNames = {
  readonly ruleNames: RuleNames;
  readonly generation: number;
  readonly entries: Uint32Array;
};
/** The rule names of a compiled policy. `epoch`: the number of its activation in the kernel. */
export type FlippedRuleNames = StagedRuleNames & { readonly epoch: number };
