import type { Review } from '#dataplane/datapath.js';
import type { Hooks } from './hooks.js';
import { type Link, listLinks } from './links.js';
import type { Other } from './others.js';
import { portFaults } from './ports.js';

/** Input of the review. `others` is null where the kernel does not list third-party hooks. */
type Looked = {
  readonly hooks: Pick<Hooks, 'interfaces'>;
  readonly others: () => readonly Other[];
};

/** Faults that prevent policing the configured interfaces as D17 asks. Throws where the kernel does not list them. */
export function review({ hooks, others }: Looked): Review {
  const { policed } = hooks.interfaces();
  const links: readonly Link[] = listLinks();
  return { faults: portFaults(policed, links, others()), warnings: [] };
}
