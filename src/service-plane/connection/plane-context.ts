import type { Verdict } from '#contracts/policy/policy-model.js';
import type { Decider } from '#contracts/policy/rule-names.js';
import type { SeenConnection } from '#contracts/service-plane/seen-connection.js';
import type { Counts } from '#service-plane/service-plane-counts.js';
import type { ServicePlaneOptions } from '#service-plane/service-plane-options.js';
import type { DecidedHits } from '#threads/decided-hits.js';
import type { ConnectionEvaluator } from './connection-evaluator.js';

/** The options and objects that all connections of one thread share. */
export type PlaneContext = {
  readonly options: ServicePlaneOptions;
  readonly evaluator: ConnectionEvaluator;
  readonly counts: Counts;
  readonly hits: Pick<DecidedHits<Decider>, 'add'>;
  /** Returns true if decisions with this verdict must be reported to the observer, by `see`. */
  tells(verdict: Verdict): boolean;
  see(seen: Omit<SeenConnection, 'atMs'>): void;
};
