import { type Command, Option } from 'commander';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, parseReply, remote } from '#cli/client/remote.js';
import { CliError, RefusedError } from '#cli/errors/command-error.js';
import type { Terminal } from '#cli/output/terminal.js';
import { duration } from '../number.js';
import {
  type Applied,
  checkedOf,
  DEFAULT_WAIT,
  DRY_RUN,
  drySchema,
  headersOf,
  quoted,
  tell,
  type WaitOptions,
  waitAfter,
  warningsIn,
  writtenOf,
} from './applied.js';
import { clusterParameters, NO_REHEARSE, waitOption, withQuery } from './cluster-flags.js';
import { type PendingOptions, pendingParameters, withPendingFlags } from './pending.command.js';
import { etagOf, listPolicies } from './policy-records.js';
import { atLines, placed, readSource } from './policy-source.js';
import { confirmReplacement } from './replacement.js';
import { type Overrides, type Write, writeOf } from './write.js';
import { type WriteFlags, withWriteFlags, writeParameters } from './write-flags.js';

type Options = Output &
  Overrides &
  WaitOptions &
  PendingOptions &
  WriteFlags & {
    readonly file: string;
    readonly dryRun?: true;
    readonly ifMatch?: string;
    readonly replace?: true;
    readonly activate: boolean;
  };

export function addApplyCommand(policy: Command, terminal: Terminal): void {
  withPendingFlags(withWriteFlags(remote(policy.command('apply'))))
    .description('write a policy and activate it: after the command, the next packet is evaluated with it')
    .requiredOption('-f, --file <file>', 'YAML or JSON, an envelope or in singleton form; - reads standard input')
    .option('--name <policy-name>', 'write it under this name')
    .addOption(new Option('--mode <mode>', 'write it with this mode').choices(['disabled', 'audit', 'enforce']))
    .option('--dry-run', 'check, compile and prove the policy; change nothing')
    .option('--if-match <etag>', 'only if the replaced policy has this ETag, which `weir policy get` shows')
    .option('--replace', 'replace the active policy even if the file does not name it')
    .option('--no-activate', 'only store it')
    .option(...NO_REHEARSE)
    .addOption(waitOption())
    .option('--timeout <duration>', `how long to wait (default: ${DEFAULT_WAIT})`, duration)
    .action(async (options: Options) => {
      const client = createClient(options, terminal);
      const source = await readSource(options.file, terminal);
      const write = writeOf(source, options);
      const seen = await confirmReplacement(write, source, options, client, terminal);
      const etag = options.ifMatch ?? seen;
      const applied = await put(client, write, etag, options).catch((error: unknown) => {
        throw error instanceof RefusedError ? atLines(error, source, write.prefix) : error;
      });
      tell(terminal, options, applied, (warning) => placed(source, warning, write.prefix));
      await waitAfter(client, applied, options, terminal);
    });
}

/** `etag`: the ETag that the stored policy must have; undefined if any stored policy may be replaced. */
async function put(client: Client, write: Write, etag: string | undefined, options: Options): Promise<Applied> {
  const { dryRun, activate } = options;
  const headers = etag === undefined ? {} : { 'if-match': quoted(etag) };
  const ask = (parameters: readonly string[]) =>
    client.exchange(withQuery(write.path, parameters), {
      method: 'PUT',
      body: write.body,
      headers: parameters.includes(DRY_RUN) && dryRun !== true ? {} : headers,
    });
  const parameters = [
    ...write.parameters,
    ...(activate ? [] : ['activate=false']),
    ...writeParameters(options),
    ...clusterParameters(options),
    ...pendingParameters(options),
  ];
  if (dryRun === true) return checkedOf((await ask([...parameters, DRY_RUN])).body);
  const answer = await ask(parameters);
  if (write.form === 'envelope') return writtenOf(answer);
  const written = headersOf(answer.headers);
  const record = (await listPolicies(client)).find((one) => etagOf(one) === written.etag);
  if (record === undefined)
    throw new CliError(
      'the policy was written, but another client has replaced it since; `weir policy list` shows the current policies',
    );
  // The response in singleton form (without name and mode) contains only the codes of warnings. Request a dry
  // run of the same policy, whose response contains the messages.
  const found = warningsIn(answer.headers);
  const described = found.length === 0 ? [] : parseReply(drySchema, (await ask([DRY_RUN])).body).warnings;
  const warnings = found.flatMap((warning) => {
    const meant = described.filter(({ code }) => code === warning.code);
    return meant.length > 0 ? meant : [warning];
  });
  return { ...written, record, warnings, proof: null };
}
