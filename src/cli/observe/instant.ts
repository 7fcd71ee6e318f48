import { InvalidArgumentError } from 'commander';
import { instantSchema } from '#api/findings/instant.schema.js';
import { durationMs } from '#contracts/duration.js';

/** The description of the option `--since`. */
export const SINCE = 'seen since this time: a time in UTC such as 2026-01-31T12:00:00Z, or a duration such as 10m';

/** Reads a time, or a duration before now, as a time in UTC. */
export function instant(text: string): string {
  const ms = durationMs(text);
  if (ms !== undefined) return new Date(Date.now() - ms).toISOString();
  const at = instantSchema.safeParse(text);
  if (!at.success)
    throw new InvalidArgumentError('It must be a time in UTC such as 2026-01-31T12:00:00Z, or a duration such as 10m.');
  return new Date(at.data).toISOString();
}
