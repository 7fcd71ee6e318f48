import { type Command, Option } from 'commander';
import { z } from 'zod';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { duration, numberUpTo, wholeNumber } from '../number.js';
import { DRY_RUN } from './applied.js';
import { withQuery } from './cluster-flags.js';
import { type CommentOptions, commentParameter, withCommentFlag } from './comment-flag.js';

const PATH = '/api/v1/policy/pending';
const schema = z.looseObject({
  pending: z
    .looseObject({
      kind: z.enum(['confirm', 'rollout']),
      generation: z.number(),
      generation_before: z.number(),
      written_at: z.string(),
      written_by: z.string(),
      ends_at: z.string(),
      share: z.number().nullable(),
      nodes: z.array(z.looseObject({ id: z.string(), healthy: z.boolean(), fault: z.string().nullable() })).nullable(),
    })
    .nullable(),
  reverted: z.looseObject({ generation: z.number(), reverted_at: z.string(), reason: z.string() }).nullable(),
  ended: z.number().nullable().optional(),
  dry_run: z.literal(true).optional(),
});
type Answer = z.infer<typeof schema>;

/** The flags that make a policy write a pending change. Times are in milliseconds. */
export type PendingOptions = {
  readonly confirmWithin?: number;
  readonly rolloutShare?: number;
  readonly rolloutHold?: number;
};

export function withPendingFlags(command: Command): Command {
  return command
    .addOption(
      new Option(
        '--confirm-within <duration>',
        'revert the change to the present policy, unless `weir policy confirm` confirms the change within this time',
      ).argParser(duration),
    )
    .addOption(
      new Option(
        '--rollout-share <percent>',
        'in a cluster: this percentage of the nodes enforces the change first; the change is reverted if one of them fails',
      )
        .argParser(numberUpTo(99))
        .conflicts('confirmWithin'),
    )
    .addOption(
      new Option('--rollout-hold <duration>', 'how long these nodes enforce the change alone (default: 5m)').argParser(
        duration,
      ),
    );
}

/** Returns the query parameters, as `name=value`, for the flags of `withPendingFlags`. */
export function pendingParameters({ confirmWithin, rolloutShare, rolloutHold }: PendingOptions): readonly string[] {
  return [
    ...(confirmWithin === undefined ? [] : [`confirm_within=${confirmWithin}ms`]),
    ...(rolloutShare === undefined ? [] : [`rollout_share=${rolloutShare}`]),
    ...(rolloutHold === undefined ? [] : [`rollout_hold=${rolloutHold}ms`]),
  ];
}

export function addPendingCommands(policy: Command, terminal: Terminal): void {
  remote(policy.command('pending'))
    .description('show the policy change that waits for its confirmation, or that is being rolled out')
    .action(async (options: Output) => {
      const answer = parseReply(schema, await createClient(options, terminal).request(PATH));
      print(terminal, options.output, answer, text);
    });
  addEnd(policy, terminal, {
    name: 'confirm',
    description: 'confirm the pending policy change: it stays in force, and a roll-out reaches all nodes now',
    done: 'confirmed',
  });
  addEnd(policy, terminal, {
    name: 'revert',
    description: 'revert the pending policy change now: the policy before it is active again',
    done: 'reverted: the policy before it is active again',
  });
}

type EndOptions = Output & CommentOptions & { readonly dryRun?: true; readonly generation?: number };
type End = { readonly name: string; readonly description: string; readonly done: string };

function addEnd(policy: Command, terminal: Terminal, { name, description, done }: End): void {
  const command = remote(policy.command(name));
  // Only a revert makes a new revision, which can have a comment.
  (name === 'revert' ? withCommentFlag(command) : command)
    .description(description)
    .option('--generation <number>', 'only if the pending change has this generation', wholeNumber)
    .option('--dry-run', 'only check whether a change is pending')
    .action(async ({ dryRun, generation, ...options }: EndOptions) => {
      const parameters = [
        ...commentParameter(options),
        ...(generation === undefined ? [] : [`generation=${generation}`]),
        ...(dryRun === true ? [DRY_RUN] : []),
      ];
      const path = withQuery(`${PATH}/${name}`, parameters);
      const reply = await createClient(options, terminal).request(path, { method: 'POST' });
      const answer = parseReply(schema, reply);
      print(terminal, options.output, answer, (shown) =>
        dryRun === true
          ? `This was a dry run: nothing was changed.\n\n${text(shown)}`
          : `generation ${answer.ended ?? 0} is ${done}\n`,
      );
    });
}

function text({ pending, reverted }: Answer): string {
  if (pending === null) {
    if (reverted === null) return 'no policy change is pending\n';
    const { generation, reverted_at: at, reason } = reverted;
    return `no policy change is pending\ngeneration ${generation} was reverted ${relativeTime(at)}: ${reason}\n`;
  }
  const isRollout = pending.kind === 'rollout';
  const facts = table(
    [],
    [
      ['change', isRollout ? `roll-out to ${pending.share ?? 0} % of the nodes` : 'waits for `weir policy confirm`'],
      ['generation', `${pending.generation} (before: ${pending.generation_before})`],
      ['written', `${relativeTime(pending.written_at)} by ${pending.written_by}`],
      [isRollout ? 'all nodes' : 'is reverted', `at ${pending.ends_at}`],
    ],
  );
  if (!isRollout) return facts;
  if (pending.nodes === null) return `${facts}\nthe health of the nodes is unknown: etcd cannot be reached\n`;
  const nodes = pending.nodes.map(({ id, healthy, fault }) => [id, healthy ? 'healthy' : (fault ?? 'not healthy')]);
  return `${facts}\n${table(['NODE', 'HEALTH'], nodes)}`;
}
