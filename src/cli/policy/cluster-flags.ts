import { Option } from 'commander';

/** The nodes of a cluster that must enforce a write before the node responds. */
const NODES = ['quorum', 'all'] as const;
/** The value of the flag `--wait` with which a command waits until the node is ready. */
export const READY = 'ready';
export type ClusterOptions = { readonly rehearse: boolean; readonly wait?: string };

export const NO_REHEARSE = [
  '--no-rehearse',
  'in a cluster: commit without the votes of the other nodes; a node that cannot stage the policy keeps its own',
] as const;

/** Returns the flag `--wait` of a command that waits until the node is ready, or for nodes of a cluster. */
export const waitOption = (): Option =>
  new Option(
    '--wait [until]',
    'until the node is ready, or until more than half or all nodes of the cluster enforce the policy (default: ready)',
  )
    .choices([READY, ...NODES])
    .preset(READY);

/** Returns the flag `--wait` of a command that can wait for nodes of a cluster only. */
export const waitForNodesOption = (): Option =>
  new Option('--wait <nodes>', 'until more than half or all nodes of the cluster enforce the change').choices(NODES);

/** Returns the query parameters, as `name=value`, for the flags `--no-rehearse` and `--wait`. */
export const clusterParameters = ({ rehearse, wait }: ClusterOptions): readonly string[] => [
  ...(rehearse ? [] : ['rehearse=false']),
  ...NODES.flatMap((nodes) => (nodes === wait ? [`wait=${nodes}`] : [])),
];

export const withQuery = (path: string, parameters: readonly string[]): string =>
  parameters.length === 0 ? path : `${path}?${parameters.join('&')}`;
