import type { Command } from 'commander';
import { createClient } from '#cli/client/client.js';
import { type Output, remote } from '#cli/client/remote.js';
import { CliError } from '#cli/errors/command-error.js';
import type { Terminal } from '#cli/output/terminal.js';
import { duration } from '../number.js';
import { checkedOf, DEFAULT_WAIT, DRY_RUN, quoted, tell, type WaitOptions, waitAfter, writtenOf } from './applied.js';
import { clusterParameters, NO_REHEARSE, waitOption, withQuery } from './cluster-flags.js';
import { type PendingOptions, pendingParameters, withPendingFlags } from './pending.command.js';
import { etagOf, findRecord, type Which } from './policy-records.js';
import { type WriteFlags, withWriteFlags, writeParameters } from './write-flags.js';

type Options = Output &
  WaitOptions &
  PendingOptions &
  WriteFlags &
  Pick<Which, 'id'> & { readonly ifMatch?: string; readonly dryRun?: true };

export function addActivateCommand(policy: Command, terminal: Terminal): void {
  withPendingFlags(withWriteFlags(remote(policy.command('activate'))))
    .description('activate a stored policy without rewriting it; the previously active policy stays stored')
    .argument('[policy-name]', 'the name of the policy')
    .option('--id <policy-id>', 'the policy of this id')
    .option('--dry-run', 'check, compile and prove the policy; change nothing')
    .option('--if-match <etag>', 'only if the policy has this ETag, which `weir policy get` shows')
    .option(...NO_REHEARSE)
    .addOption(waitOption())
    .option('--timeout <duration>', `how long to wait (default: ${DEFAULT_WAIT})`, duration)
    .action(async (name: string | undefined, options: Options) => {
      const { id, ifMatch, dryRun } = options;
      if (id === undefined && name === undefined)
        throw new CliError('which policy? Give its name, or --id; `weir policy list` shows them', { exitCode: 2 });
      const client = createClient(options, terminal);
      const record = await findRecord(client, {
        ...(id === undefined ? {} : { id }),
        ...(name === undefined ? {} : { name }),
      });
      // Send the ETag of the record that was read. If another client changed the policy in the meantime, the
      // node refuses the activation.
      const headers = { 'if-match': quoted(ifMatch ?? etagOf(record)) };
      const parameters = [
        ...(dryRun === true ? [DRY_RUN] : []),
        ...writeParameters(options),
        ...clusterParameters(options),
        ...pendingParameters(options),
      ];
      const path = withQuery(`/api/v1/policies/${record.id}/activate`, parameters);
      const answer = await client.exchange(path, { method: 'POST', headers });
      const applied = dryRun === true ? checkedOf(answer.body) : writtenOf(answer);
      tell(terminal, options, applied, ({ pointer, message }) => `${message}${pointer === '' ? '' : ` (${pointer})`}`);
      await waitAfter(client, applied, options, terminal);
    });
}
