import type { Command } from 'commander';
import { z } from 'zod';
import { append } from '#arrays/append.js';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { styleOf } from '#cli/output/style.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { visible } from '#cli/output/visible.js';
import { duration, wholeNumber } from '../number.js';
import { checkedOf, DEFAULT_WAIT, DRY_RUN, quoted, tell, type WaitOptions, waitAfter, writtenOf } from './applied.js';
import { clusterParameters, NO_REHEARSE, waitOption, withQuery } from './cluster-flags.js';
import { type PendingOptions, pendingParameters, withPendingFlags } from './pending.command.js';
import { idOf, recordSchema, type Which } from './policy-records.js';
import { type WriteFlags, withWriteFlags, writeParameters } from './write-flags.js';

const countsSchema = z.object({ added: z.number(), changed: z.number(), removed: z.number() });
const eventSchema = z.object({
  by: z.string(),
  at: z.string(),
  comment: z.string().nullable(),
  // Nodes with an older build omit this member.
  overrides: z.array(z.string()).default([]),
  generation: z.number().nullable(),
});
const rowSchema = recordSchema.extend({
  via: z.string().nullable(),
  comment: z.string().nullable(),
  // Nodes with an older build omit this member.
  overrides: z.array(z.string()).default([]),
  generation: z.number().nullable(),
  source_group: z.string().nullable(),
  of_revision: z.number().nullable(),
  size: z.object({ groups: countsSchema, rules: countsSchema, other: z.boolean() }).nullable(),
  bytes: z.number().nullable(),
  activated: eventSchema.nullable(),
  removed: eventSchema.nullable(),
});
type Row = z.infer<typeof rowSchema>;
const pageSchema = z.object({ items: z.array(rowSchema), next_cursor: z.string().nullable() });

/** The maximum number of revisions in one response of the API. */
const PAGE = 500;
const USUAL = 20;

type RollbackOptions = Output &
  WaitOptions &
  PendingOptions &
  WriteFlags &
  Pick<Which, 'id'> & { readonly ifMatch?: string; readonly dryRun?: true; readonly activate: boolean };

export function addHistoryCommands(policy: Command, terminal: Terminal): void {
  remote(policy.command('history'))
    .description('list the revisions of the active policy, or of another one, the newest first')
    .argument('[policy-name]', 'the name of the policy')
    .option('--id <policy-id>', 'the policy of this id, also after it was deleted')
    .option('--limit <number>', `the largest number of revisions (default: ${USUAL})`, wholeNumber)
    .action(async (name: string | undefined, options: Output & Pick<Which, 'id'> & { limit?: number }) => {
      const client = createClient(options, terminal);
      const id = await idOf(client, whichOf(name, options));
      const limit = options.limit ?? USUAL;
      const { items, more } = await rowsOf(client, id, limit);
      print(terminal, options.output, { id, items }, (shown) => tableOf(shown.items, terminal));
      if (more && options.limit === undefined && options.output === 'table')
        terminal.err(`there are earlier revisions: give --limit with more than ${USUAL}\n`);
    });

  withPendingFlags(withWriteFlags(remote(policy.command('rollback'))))
    .description(
      'write the document of an earlier revision again, as a new revision, and activate it; the policy keeps its name',
    )
    .argument('<revision>', 'the number of the revision, which `weir policy history` shows', wholeNumber)
    .argument('[policy-name]', 'the name of the policy; by default, the active one')
    .option('--id <policy-id>', 'the policy of this id')
    .option('--dry-run', 'check, compile and prove the document; change nothing')
    .option('--if-match <etag>', 'only if the policy has this ETag, which `weir policy get` shows')
    .option('--no-activate', 'only store it')
    .option(...NO_REHEARSE)
    .addOption(waitOption())
    .option('--timeout <duration>', `how long to wait (default: ${DEFAULT_WAIT})`, duration)
    .action(async (revision: number, name: string | undefined, options: RollbackOptions) => {
      const client = createClient(options, terminal);
      const id = await idOf(client, whichOf(name, options));
      const { ifMatch, dryRun, activate } = options;
      const parameters = [
        ...(dryRun === true ? [DRY_RUN] : []),
        ...(activate ? [] : ['activate=false']),
        ...writeParameters(options),
        ...clusterParameters(options),
        ...pendingParameters(options),
      ];
      const answer = await client.exchange(
        withQuery(`/api/v1/policies/${encodeURIComponent(id)}/rollback`, parameters),
        {
          method: 'POST',
          body: JSON.stringify({ revision }),
          headers: ifMatch === undefined ? {} : { 'if-match': quoted(ifMatch) },
        },
      );
      const applied = dryRun === true ? checkedOf(answer.body) : writtenOf(answer);
      tell(terminal, options, applied, ({ pointer, message }) => `${message}${pointer === '' ? '' : ` (${pointer})`}`);
      await waitAfter(client, applied, options, terminal);
    });
}

const whichOf = (name: string | undefined, { id }: Pick<Which, 'id'>): Which => ({
  ...(name === undefined ? {} : { name }),
  ...(id === undefined ? {} : { id }),
});

async function rowsOf(client: Client, id: string, limit: number): Promise<{ items: Row[]; more: boolean }> {
  const items: Row[] = [];
  for (let cursor: string | null = null; ; ) {
    const parameters: string[] = [
      `limit=${Math.min(PAGE, limit - items.length)}`,
      ...(cursor === null ? [] : [`cursor=${cursor}`]),
    ];
    const path = withQuery(`/api/v1/policies/${encodeURIComponent(id)}/history`, parameters);
    const page = parseReply(pageSchema, await client.request(path));
    append(items, page.items);
    cursor = page.next_cursor;
    if (cursor === null || items.length >= limit) return { items, more: cursor !== null };
  }
}

function tableOf(items: readonly Row[], terminal: Terminal): string {
  const style = styleOf(terminal);
  const removed = items[0]?.removed ?? null;
  const rows = items.map((row) => [
    String(row.revision),
    row.active ? style.good('active') : '-',
    // The generation (activation number) of the latest activation. An activation after the write has a later
    // generation than the write.
    String(row.activated?.generation ?? row.generation ?? '-'),
    relativeTime(row.updated_at),
    row.updated_by,
    viaText(row),
    sizeText(row),
    commentText(row),
  ]);
  const titles = ['REVISION', 'ACTIVE', 'GENERATION', 'WRITTEN', 'BY', 'VIA', 'CHANGE', 'COMMENT'];
  if (removed === null) return table(titles, rows);
  const why = removed.comment === null ? '' : `: ${visible(removed.comment)}`;
  return `deleted ${relativeTime(removed.at)} by ${visible(removed.by)}${why}\n\n${table(titles, rows)}`;
}

/** Returns the comment, and the assertions that the write or the last activation was allowed to break. */
function commentText({ comment, overrides, activated }: Row): string {
  const ids = [...new Set([...overrides, ...(activated?.overrides ?? [])])];
  const broken = ids.length === 0 ? '' : `(overrides ${ids.join(', ')})`;
  return [comment ?? '', broken].filter((text) => text !== '').join(' ') || '-';
}

function viaText({ via, source_group: group, of_revision: of }: Row): string {
  const of_ = of === null ? '' : ` of ${of}`;
  return `${via ?? '-'}${of_}${group === null ? '' : ` ${group}`}`;
}

function sizeText({ size }: Row): string {
  if (size === null) return '-';
  const counted = (what: string, { added, changed, removed }: z.infer<typeof countsSchema>): string[] => {
    const signs = [added > 0 ? `+${added}` : '', changed > 0 ? `~${changed}` : '', removed > 0 ? `-${removed}` : ''];
    const shown = signs.filter((sign) => sign !== '');
    return shown.length === 0 ? [] : [`${what} ${shown.join(' ')}`];
  };
  const parts = [...counted('groups', size.groups), ...counted('rules', size.rules), ...(size.other ? ['other'] : [])];
  return parts.length === 0 ? 'nothing' : parts.join(', ');
}
