import { type Command, Option } from 'commander';
import { z } from 'zod';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote, withQuery } from '#cli/client/remote.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { addClusterNodesCommands } from './cluster-nodes.command.js';

const PATH = '/api/v1/cluster';
const clusterSchema = z.looseObject({
  enabled: z.boolean(),
  node_id: z.string(),
  cluster_id: z.string().nullable(),
  connected: z.boolean(),
  leader: z.string().nullable(),
  dry_run: z.literal(true).optional(),
  generation: z.number(),
  revision: z.number().nullable(),
  members: z
    .array(
      z.looseObject({
        id: z.string(),
        address: z.string(),
        version: z.string(),
        generation: z.number(),
        since: z.string(),
        leads: z.boolean(),
        // Default to null, because a node with an older build omits this member.
        ipv6: z.string().nullable().default(null),
      }),
    )
    .nullable(),
  // Default to an empty list, because a node with an older build omits this member.
  unreadable: z.array(z.object({ key: z.string(), reason: z.string() })).default([]),
  unreadable_count: z.number().default(0),
});
type ClusterAnswer = z.infer<typeof clusterSchema>;

export function addClusterCommands(program: Command, terminal: Terminal): void {
  const cluster = program.command('cluster').description('the nodes that share policies and settings on etcd');
  const answer = (options: Output, reply: unknown): void => {
    const shown = parseReply(clusterSchema, reply);
    const tried = shown.dry_run === true ? 'This was a dry run: nothing was changed.\n\n' : '';
    print(terminal, options.output, shown, (printed) => tried + text(printed));
  };

  remote(cluster.command('status'))
    .description('show the cluster and its members')
    .action(async (options: Output) => answer(options, await createClient(options, terminal).request(PATH)));

  remote(cluster.command('init'))
    .description('create the cluster in etcd, with the policies and settings of this node')
    .option('--dry-run', 'only check whether the cluster can be created')
    .action(async ({ dryRun, ...options }: Output & { dryRun?: boolean }) => {
      const path = withQuery(`${PATH}/init`, { dry_run: dryRun });
      answer(options, await createClient(options, terminal).request(path, { method: 'POST' }));
    });

  addClusterNodesCommands(cluster, terminal);

  remote(cluster.command('recover'))
    .description('end a contradiction between this node and etcd, for example after the restore of an old backup')
    .addOption(
      new Option('--keep <side>', 'whose policies and settings stay: those of this node, or those of the store in etcd')
        .choices(['node', 'store'])
        .makeOptionMandatory(),
    )
    .option('--dry-run', 'only check whether the cluster can be recovered')
    .action(async ({ keep, dryRun, ...options }: Output & { keep: string; dryRun?: boolean }) => {
      const path = withQuery(`${PATH}/recover`, { dry_run: dryRun });
      answer(options, await createClient(options, terminal).request(path, { method: 'POST', body: { keep } }));
    });
}

function text(cluster: ClusterAnswer): string {
  if (!cluster.enabled) return `${cluster.node_id} runs without a cluster\n`;
  const facts = table(
    [],
    [
      ['cluster', cluster.cluster_id ?? 'not created; run `weir cluster init` on one node'],
      ['node', cluster.node_id],
      ['etcd', etcdText(cluster)],
      ['leader', cluster.leader ?? 'none'],
      ['generation', String(cluster.generation)],
    ],
  );
  const unreadable = unreadableText(cluster);
  if (cluster.members === null) return facts + unreadable;
  const members = table(
    ['NODE', 'ADDRESS', 'VERSION', 'GENERATION', 'STARTED'],
    cluster.members.map(({ id, address, version, generation, since, leads }) => [
      leads ? `${id} (leader)` : id,
      address,
      version,
      String(generation),
      relativeTime(since),
    ]),
  );
  return `${facts}\n${members}${ipv6Text(cluster.members)}${unreadable}`;
}

/** Returns a sentence if only some members enforce IPv6 policies. */
function ipv6Text(members: NonNullable<ClusterAnswer['members']>): string {
  const [enforcing, others] = [true, false].map((enforces) =>
    members.flatMap(({ id, ipv6 }) => ((ipv6 === 'enforce') === enforces ? id : [])).join(', '),
  );
  if (enforcing === '' || others === '') return '';
  return `\nThe nodes differ in dataplane.ipv6: enforce on ${enforcing}, not on ${others}, which refuse a policy with IPv6.\n`;
}

/**
 * A node watches etcd only after the cluster was created. Until then, a list of members shows that the node
 * can read etcd.
 */
function etcdText({ connected, cluster_id: id, revision, members }: ClusterAnswer): string {
  if (connected) return `connected, revision ${revision ?? 0}`;
  return id === null && members !== null ? 'reachable' : 'not connected';
}

function unreadableText({ unreadable, unreadable_count: count }: ClusterAnswer): string {
  if (count === 0) return '';
  const rows = table(
    ['UNREADABLE KEY IN ETCD', 'REASON'],
    unreadable.map(({ key, reason }) => [key, reason]),
  );
  const more = count > unreadable.length ? `and ${count - unreadable.length} more\n` : '';
  return `\n${rows}${more}Nothing uses these values. Write such a key again, or remove it with \`etcdctl del\`.\n`;
}
