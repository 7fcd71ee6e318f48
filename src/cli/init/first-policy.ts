import type { Client } from '#cli/client.js';
import { CliError, RefusedError } from '#cli/command-error.js';
import { readReadiness } from '#cli/node-readiness.js';
import { pause } from '#cli/pause.js';
import { warn, writtenOf } from '#cli/policy/applied.js';
import { labelOf, listPolicies } from '#cli/policy/policy-records.js';
import { atLines, placed, readSource } from '#cli/policy/policy-source.js';
import { writeOf } from '#cli/policy/write.js';
import type { Terminal } from '#cli/terminal.js';

const ANSWERS_WITHIN_MS = 60_000;
const POLL_MS = 250;

/**
 * Writes the policy of a file with a mode, unless a policy with another name is active. Without a mode, any
 * active policy stays, and otherwise the file has the mode. Returns the name and
 * the mode of the policy that is active afterwards.
 */
export async function firstPolicy(
  client: Client,
  file: string,
  mode: string | undefined,
  terminal: Terminal,
): Promise<{ readonly name: string; readonly mode: string }> {
  await answered(client, terminal.interruption());
  const active = (await listPolicies(client)).find((record) => record.active);
  const source = await readSource(file, terminal);
  if (active !== undefined && (mode === undefined || active.name !== source.value.name)) {
    terminal.out(`the policy ${labelOf(active)} (${active.mode}) is active already, and stays\n`);
    return { name: labelOf(active), mode: active.mode };
  }
  const write = writeOf(source, mode === undefined ? {} : { mode });
  const answer = await client.exchange(write.path, { method: 'PUT', body: write.body }).catch((error: unknown) => {
    throw error instanceof RefusedError ? atLines(error, source, write.prefix) : error;
  });
  const { record, warnings } = writtenOf(answer);
  warn(terminal, warnings, (warning) => placed(source, warning, write.prefix));
  return { name: labelOf(record), mode: record.mode };
}

/** Waits until the node answers. The node writes its token and opens its API after it reports readiness. */
async function answered(client: Client, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + ANSWERS_WITHIN_MS;
  for (;;) {
    try {
      await readReadiness(client);
      return;
    } catch (error) {
      const isLast = performance.now() >= deadline || signal.aborted;
      if (isLast || error instanceof RefusedError || !(error instanceof CliError)) throw error;
    }
    await pause(POLL_MS, signal);
  }
}
