import type { Review } from '#contracts/datapath.js';
import type { DatapathOptions } from '#contracts/datapath-options.js';
import type { Hooks } from '#dataplane/attach/hooks.js';
import { type Link, listLinks } from '#dataplane/attach/links.js';
import type { ThirdPartyHook } from '#dataplane/forwarding/third-party-hooks.js';
import type { Guard } from '#dataplane/guard/nftables-guard.js';
import { diversionFaults } from '#dataplane/routes/divert.js';
import { portFaults } from './bridge-ports.js';
import { natFaults } from './nat.js';
import { unnamedWarnings } from './unpoliced-interfaces.js';

/** Input of the review. `others` returns an empty list if the kernel cannot list third-party hooks. */
type Looked = {
  readonly options: Pick<DatapathOptions, 'interfaces' | 'markMask'>;
  readonly hooks: Pick<Hooks, 'interfaces'>;
  readonly guard: Pick<Guard, 'warnings'>;
  readonly others: () => readonly ThirdPartyHook[];
  /** Whether the datapath redirects packets to the node. */
  readonly diverts: boolean;
};

/**
 * Faults that prevent policing the configured interfaces as D17 requires. Throws if the kernel cannot be
 * read.
 */
export function review({ options, hooks, guard, others, diverts }: Looked): Review {
  const { policed } = hooks.interfaces();
  const links: readonly Link[] = listLinks();
  const faults = [
    ...portFaults(policed, links, others()),
    ...natFaults(policed),
    ...(diverts ? diversionFaults(options.markMask, options.interfaces) : []),
  ];
  return { faults, warnings: [...unnamedWarnings(policed, links), ...guard.warnings()] };
}
