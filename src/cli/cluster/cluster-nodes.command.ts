import type { Command } from 'commander';
import { z } from 'zod';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote, serialised } from '#cli/client/remote.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { joinCluster } from './cluster-join.js';

const NODES = '/api/v1/cluster/nodes';
const nodesSchema = z.looseObject({
  items: z.array(
    z.looseObject({
      node_id: z.string(),
      address: z.string(),
      version: z.string(),
      joined_at: z.string(),
      state: z.string(),
      failing_checks: z.array(z.string()),
      error: z.string().nullable(),
      generation: z.number().nullable(),
      started_at: z.string().nullable(),
      clock_offset: z.number().nullish(),
    }),
  ),
});
type Node = z.infer<typeof nodesSchema>['items'][number];
const tokenSchema = z.object({ token: z.string(), expires_at: z.string() });

export function addClusterNodesCommands(cluster: Command, terminal: Terminal): void {
  remote(cluster.command('nodes'))
    .description('list all nodes that have joined the cluster, and whether they are ready')
    .action(async (options: Output) => {
      const nodes = parseReply(nodesSchema, await createClient(options, terminal).request(NODES));
      print(terminal, options.output, nodes, (shown) => tableOf(shown.items));
    });

  remote(cluster.command('token'))
    .description('issue a token with which one other node can join the cluster within one hour')
    .action(async (options: Output) => {
      const reply = await createClient(options, terminal).request('/api/v1/cluster/join-tokens', { method: 'POST' });
      const issued = parseReply(tokenSchema, reply);
      if (options.output !== 'table') return terminal.out(serialised(options.output, issued));
      terminal.err(`the token is valid for one node, and ends ${relativeTime(issued.expires_at)}\n`);
      terminal.out(`${issued.token}\n`);
    });

  cluster
    .command('join')
    .description('make the node of a configuration file on this machine a node of the cluster; then start the node')
    .argument('<token>', 'a token of `weir cluster token`')
    .requiredOption('--config <file>', 'the configuration file, which gets the section `cluster`')
    .requiredOption('--advertise <address>', 'the address at which other nodes reach this node, such as 10.0.1.2:7443')
    .option('--listen <address>', 'the address of the peer listener (default: the advertised address)')
    .action(
      async (token: string, { config, advertise, listen }: { config: string; advertise: string; listen?: string }) => {
        const folder = await joinCluster({ token, config, advertise, listen: listen ?? advertise });
        terminal.out(
          `${config} has the section \`cluster\`; the credentials are in ${folder}. ` +
            'Start the node. If it has policies of its own, `weir cluster recover --keep store` replaces them.\n',
        );
      },
    );

  remote(cluster.command('remove'))
    .description('remove a node from the cluster; it cannot join again with its data folder')
    .argument('<node-id>', 'the id of the node')
    .option('--dry-run', 'only check whether the cluster has the node')
    .action(async (id: string, { dryRun, ...options }: Output & { readonly dryRun?: true }) => {
      const path = `${NODES}/${encodeURIComponent(id)}${dryRun === true ? '?dry_run' : ''}`;
      await createClient(options, terminal).request(path, { method: 'DELETE' });
      const removed = { node_id: id, removed: dryRun !== true };
      print(terminal, options.output, removed, () =>
        dryRun === true ? `the node ${id} would be removed\n` : `the node ${id} was removed\n`,
      );
    });
}

function tableOf(nodes: readonly Node[]): string {
  return table(
    ['NODE', 'STATE', 'GENERATION', 'VERSION', 'ADDRESS', 'STARTED', 'DETAIL'],
    nodes.map((node) => [
      node.node_id,
      node.state,
      node.generation === null ? '-' : String(node.generation),
      node.version,
      node.address,
      node.started_at === null ? '-' : relativeTime(node.started_at),
      node.error ?? [...node.failing_checks, ...clockOf(node)].join(', '),
    ]),
  );
}

function clockOf({ clock_offset: offset }: Node): string[] {
  if (offset == null || offset === 0) return [];
  return [`clock ${Math.abs(offset)} s ${offset > 0 ? 'ahead' : 'behind'}`];
}
