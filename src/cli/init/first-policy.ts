import type { Client } from '#cli/client/client.js';
import { CliError, RefusedError } from '#cli/errors/command-error.js';
import { readReadiness } from '#cli/node/node-readiness.js';
import type { Terminal } from '#cli/output/terminal.js';
import { pause } from '#cli/pause.js';
import { DRY_RUN, warn, writtenOf } from '#cli/policy/applied.js';
import {
  documentOf,
  etagOf,
  labelOf,
  listPolicies,
  type PolicyRecord,
  readStored,
} from '#cli/policy/policy-records.js';
import { atLines, checkSource, placed, type Source, sourceOf } from '#cli/policy/policy-source.js';
import { type Write, writeOf } from '#cli/policy/write.js';

const ANSWERS_WITHIN_MS = 60_000;
const POLL_MS = 250;

export type Active = { readonly name: string; readonly mode: string };
type Put = { readonly write: Write; readonly headers: Readonly<Record<string, string>> };
/**
 * The request that writes a policy, or the active policy if it must not be changed; null if no policy is
 * active.
 */
type Plan =
  | { readonly write: Write; readonly headers: Readonly<Record<string, string>> }
  | { readonly stays: Active | null };

/**
 * Puts the policy of a file in force, with the given mode. If the node already has a policy with this name,
 * changes only its mode, so that rules written through the API are kept. Without a mode, does not change this
 * policy at all. An active policy with another name stays active. Returns the policy that is active
 * afterwards; null if none is.
 */
export async function firstPolicy(
  client: Client,
  source: Source,
  mode: string | undefined,
  terminal: Terminal,
): Promise<Active | null> {
  await waitForApi(client, terminal.interruption());
  const plan = await planOf(client, source, mode);
  if ('stays' in plan) {
    if (plan.stays !== null)
      terminal.out(`the policy ${plan.stays.name} (${plan.stays.mode}) is active already, and stays\n`);
    return plan.stays;
  }
  const { write } = plan;
  const answer = await send(client, plan, source, '');
  const { record, warnings } = writtenOf(answer);
  warn(terminal, warnings, (warning) => placed(source, warning, write.prefix));
  return activeOf(record);
}

/** Throws a `CliError` if a running node would refuse the write of `firstPolicy`. Changes nothing. */
export async function checkFirstPolicy(client: Client, source: Source, mode: string | undefined): Promise<void> {
  const plan = await planOf(client, source, mode);
  if ('write' in plan) await send(client, plan, source, `?${DRY_RUN}`);
}

/** Throws a `CliError` if the text is not a valid policy with a name, which `firstPolicy` can write. */
export async function checkedSource(text: string, file: string, mode: string): Promise<Source> {
  const source = sourceOf(text, file);
  if (source.form === 'singleton' || typeof source.value.name !== 'string')
    throw new CliError(`weir init cannot use ${file}: a first policy has the keys name, mode and policy`);
  await checkSource(source, mode);
  return source;
}

function send(client: Client, { write, headers }: Put, source: Source, query: string): ReturnType<Client['exchange']> {
  return client
    .exchange(`${write.path}${query}`, { method: 'PUT', body: write.body, headers })
    .catch((error: unknown) => {
      throw error instanceof RefusedError ? atLines(error, source, write.prefix) : error;
    });
}

const activeOf = (record: PolicyRecord): Active => ({ name: labelOf(record), mode: record.mode });

async function planOf(client: Client, source: Source, mode: string | undefined): Promise<Plan> {
  const records = await listPolicies(client);
  const active = records.find((record) => record.active);
  const { name } = source.value;
  const same = records.find((record) => typeof name === 'string' && record.name?.toLowerCase() === name.toLowerCase());
  if (active !== undefined && (mode === undefined || active !== same)) return { stays: activeOf(active) };
  if (same === undefined) return { write: writeOf(source, mode === undefined ? {} : { mode }), headers: {} };
  if (mode === undefined) return { stays: null };
  return modeChange(client, same, mode);
}

/** Returns the request that changes the mode of a stored policy, unless the policy changes in between. */
async function modeChange(client: Client, record: PolicyRecord, mode: string): Promise<Plan> {
  const label = labelOf(record);
  if (record.form === 'singleton')
    throw new CliError(
      `the mode of the policy ${label} cannot be changed: it is stored without a mode, and each of its groups has its own`,
      {
        fix: 'change the modes with `weir policy apply`, and give `weir init` no --mode',
      },
    );
  const stored = await readStored(client, { id: record.id });
  if (stored === null)
    throw new CliError(`another client removed the policy ${label} during this command: run the command again`);
  const path = `/api/v1/policies/by-name/${encodeURIComponent(label)}`;
  const body = JSON.stringify({ ...documentOf(stored), mode });
  return {
    write: { path, parameters: [], body, form: 'envelope', prefix: '' },
    headers: { 'if-match': etagOf(stored) },
  };
}

/** Waits until the API responds. systemd can report the unit as started before that. */
async function waitForApi(client: Client, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + ANSWERS_WITHIN_MS;
  for (;;) {
    try {
      await readReadiness(client, undefined, signal);
      return;
    } catch (error) {
      const isLast = performance.now() >= deadline || signal.aborted;
      if (isLast || error instanceof RefusedError || !(error instanceof CliError)) throw error;
    }
    await pause(POLL_MS, signal);
  }
}
