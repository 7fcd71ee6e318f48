import { z } from 'zod';
import type { Client } from '#cli/client/client.js';
import { CliError, RefusedError } from '#cli/errors/command-error.js';
import { pause } from '#cli/pause.js';

const readinessSchema = z.object({
  ready: z.boolean(),
  in_force_since: z.string().nullish(),
  checks: z.array(
    z.object({
      name: z.string(),
      ok: z.boolean(),
      state: z.string(),
      detail: z.string(),
      since: z.string(),
      excluded: z.literal(true).optional(),
    }),
  ),
});
export type Readiness = z.infer<typeof readinessSchema>;

const POLL_MS = 250;

/** Reads the readiness report. `excluded`: names of checks, separated by commas, that `ready` must ignore. */
export async function readReadiness(client: Client, excluded?: string, signal?: AbortSignal): Promise<Readiness> {
  const query = excluded === undefined ? '' : `?exclude=${encodeURIComponent(excluded)}`;
  const path = `/ready${query}`;
  const answer = await client.request(path, { accept: [503], signal }).catch((error: unknown) => {
    // A response 5xx without an error code can come from a proxy in front of a restarting node.
    const isForeign = error instanceof RefusedError && error.code === undefined && error.status < 500;
    throw isForeign ? client.foreignAnswer(path, error) : error;
  });
  const parsed = readinessSchema.safeParse(answer);
  if (!parsed.success) throw client.foreignAnswer(path, parsed.error);
  return parsed.data;
}

/**
 * Requests readiness reports until the node is ready, `timeoutMs` has passed or `signal` aborts. Returns the
 * last report. Throws if the node does not respond in time or refuses the request. Throws at once if the
 * response does not come from a Weir node.
 */
export async function waitUntilReady(
  client: Client,
  timeoutMs: number,
  signal: AbortSignal,
  excluded?: string,
): Promise<Readiness> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const isLast = performance.now() + POLL_MS >= deadline || signal.aborted;
    try {
      const report = await readReadiness(client, excluded, signal);
      if (report.ready || isLast) return report;
    } catch (error) {
      const isFinal =
        error instanceof CliError &&
        (error.code === 'not_weir' || (error instanceof RefusedError && error.status < 500));
      if (isLast || isFinal || signal.aborted || !(error instanceof CliError)) throw error;
    }
    await pause(POLL_MS, signal);
  }
}

/** Returns the failed checks as one line of text, without the excluded checks. */
export function failingChecks({ checks }: Readiness): string {
  return checks
    .filter(({ ok, excluded }) => !ok && !excluded)
    .map(({ name, state, detail }) => `${name} ${state}${detail === '' ? '' : ` (${detail})`}`)
    .join('; ');
}
