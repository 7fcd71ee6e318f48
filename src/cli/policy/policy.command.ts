import { type Command, Option } from 'commander';
import { createClient } from '#cli/client/client.js';
import { type Output, print, printing, remote, serialised } from '#cli/client/remote.js';
import { CliError } from '#cli/errors/command-error.js';
import type { End } from '#cli/errors/exit-codes.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { styleOf } from '#cli/output/style.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { visible } from '#cli/output/visible.js';
import { policyJsonSchema, type SchemaForm } from '#policy/document/json-schema.js';
import { wholeNumber } from '../number.js';
import { addActivateCommand } from './activate.command.js';
import { DRY_RUN, warn, warningsIn } from './applied.js';
import { addApplyCommand } from './apply.command.js';
import { addAskCommand } from './ask.command.js';
import { type ClusterOptions, clusterParameters, NO_REHEARSE, waitForNodesOption, withQuery } from './cluster-flags.js';
import { addDiffCommand } from './diff.command.js';
import { addExplainCommand } from './explain.command.js';
import { addHistoryCommands } from './history.command.js';
import { addLintCommand } from './lint.command.js';
import { addMembersCommand } from './members.command.js';
import { addPendingCommands, type PendingOptions, pendingParameters, withPendingFlags } from './pending.command.js';
import {
  documentOf,
  etagOf,
  labelOf,
  listPolicies,
  readRevision,
  readStored,
  type Stored,
  type Which,
} from './policy-records.js';
import { addTestCommand } from './test.command.js';
import { type WriteFlags, withWriteFlags, writeParameters } from './write-flags.js';

export function addPolicyCommands(program: Command, terminal: Terminal, end: End): void {
  const policy = program.command('policy').description('policies of a node');
  addListCommand(policy, terminal);
  addGetCommand(policy, terminal);
  addApplyCommand(policy, terminal);
  addActivateCommand(policy, terminal);
  addDiffCommand(policy, terminal, end);
  addAskCommand(policy, terminal, end);
  addTestCommand(policy, terminal, end);
  addLintCommand(policy, terminal, end);
  addExplainCommand(policy, terminal);
  addSchemaCommand(policy, terminal);
  addDeleteCommand(policy, terminal);
  addMembersCommand(policy, terminal);
  addPendingCommands(policy, terminal);
  addHistoryCommands(policy, terminal);
}

function addListCommand(policy: Command, terminal: Terminal): void {
  remote(policy.command('list'))
    .description('list all stored policies')
    .action(async (options: Output) => {
      const records = await listPolicies(createClient(options, terminal));
      const style = styleOf(terminal);
      print(terminal, options.output, { items: records }, (shown) =>
        table(
          ['NAME', 'MODE', 'ACTIVE', 'REVISION', 'FORM', 'UPDATED', 'BY', 'ID'],
          shown.items.map((record) => [
            record.name ?? '-',
            record.mode,
            record.active ? style.good('active') : '-',
            String(record.revision),
            record.form,
            relativeTime(record.updated_at),
            record.updated_by,
            record.id,
          ]),
        ),
      );
    });
}

type GetOptions = Output & Which & { readonly output: 'yaml' | 'json'; readonly revision?: number };

function addGetCommand(policy: Command, terminal: Terminal): void {
  remote(policy.command('get'), ['yaml', 'json'])
    .description('print the active policy, or another one, as a file for `weir policy apply`')
    .option('--id <policy-id>', 'the policy of this id')
    .option('--name <policy-name>', 'the policy of this name')
    .option('--revision <number>', 'an earlier revision, which `weir policy history` shows', wholeNumber)
    .action(async ({ output, ...options }: GetOptions) => {
      const { revision, ...which } = options;
      const client = createClient(options, terminal);
      const stored =
        revision === undefined ? await readStored(client, which) : await readRevision(client, which, revision);
      if (stored === null) terminal.err('no policy is active: policy.fallback decides\n');
      const document = stored === null ? {} : documentOf(stored);
      if (output === 'yaml' && stored !== null) terminal.out(heading(stored));
      terminal.out(serialised(output, document));
    });
}

function heading(stored: Stored): string {
  const { revision, active, updated_at: at, updated_by: author } = stored;
  const state = active ? 'active' : 'not active';
  return `# ${visible(labelOf(stored))}: revision ${revision}, ${state}, written ${at} by ${visible(author)}\n# ETag: ${etagOf(stored)}\n`;
}

type DeleteOptions = Output &
  Which &
  ClusterOptions &
  PendingOptions &
  WriteFlags & { readonly ifMatch?: string; readonly dryRun?: true };

function addDeleteCommand(policy: Command, terminal: Terminal): void {
  withPendingFlags(withWriteFlags(remote(policy.command('delete'))))
    .description('delete a stored policy; if no policy is active, policy.fallback decides')
    .option('--id <policy-id>', 'the policy of this id')
    .option('--name <policy-name>', 'the policy of this name')
    .option('--if-match <etag>', 'only if the policy has this ETag, which `weir policy get` shows')
    .option('--dry-run', 'only show what would be deleted')
    .option(...NO_REHEARSE)
    .addOption(waitForNodesOption())
    .action(async (options: DeleteOptions) => {
      if (options.id === undefined && options.name === undefined)
        throw new CliError('which policy? Give --id or --name; `weir policy list` shows them', { exitCode: 2 });
      const client = createClient(options, terminal);
      const stored = await readStored(client, options);
      if (stored === null) return;
      const path = `/api/v1/policies/${stored.id}`;
      // Send the ETag of the policy that was read. If another client changed the policy in the meantime, the
      // node refuses the deletion.
      const headers = { 'if-match': options.ifMatch ?? etagOf(stored) };
      const dry = options.dryRun === true;
      const parameters = [
        ...(dry ? [DRY_RUN] : []),
        ...writeParameters(options),
        ...clusterParameters(options),
        ...pendingParameters(options),
      ];
      const answer = await client.exchange(withQuery(path, parameters), { method: 'DELETE', headers });
      // Omit the warning `none_active`, because the text that is printed below contains it.
      const warnings = warningsIn(answer.headers).filter(({ code }) => code !== 'none_active');
      const shown = { id: stored.id, name: stored.name, was_active: stored.active, deleted: !dry, warnings };
      if (options.output === 'table') warn(terminal, warnings);
      print(terminal, options.output, shown, () => {
        const done = `${visible(labelOf(stored))} ${dry ? 'would be deleted' : 'deleted'}\n`;
        return stored.active ? `${done}none is active ${dry ? 'then' : 'now'}: policy.fallback decides\n` : done;
      });
    });
}

function addSchemaCommand(policy: Command, terminal: Terminal): void {
  printing(policy.command('schema'), ['json', 'yaml'])
    .description('print the JSON Schema of a policy file, for editors and other tools; needs no node')
    .addOption(
      new Option('--form <form>', 'the form that the file has')
        .choices(['any', 'singleton', 'envelope'])
        .default('any'),
    )
    .action(({ form, output }: { form: SchemaForm; output: 'json' | 'yaml' }) => {
      terminal.out(serialised(output, policyJsonSchema(form)));
    });
}
