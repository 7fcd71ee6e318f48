import type { Verdict } from '#policy/model.js';
import type { Decider } from '#policy/roster.js';
import type { SeenConnection } from '#policy/seen-connection.js';
import type { DecidedHits } from '#threads/decided-hits.js';
import type { Counts } from './counts.js';
import type { Interceptor } from './interceptor.js';
import type { Judge } from './judge.js';
import type { ServicePlaneOptions } from './options.js';
import type { Splices } from './splice.js';

/** What the connections of one thread have in common. */
export type Plane = {
  readonly options: ServicePlaneOptions;
  readonly judge: Judge;
  readonly counts: Counts;
  readonly hits: Pick<DecidedHits<Decider>, 'add'>;
  readonly interceptor: Interceptor;
  /** Whether what was decided so is to be told. */
  tells(verdict: Verdict): boolean;
  readonly splices: Splices;
  see(seen: Omit<SeenConnection, 'atMs'>): void;
};
