import { z } from 'zod';
import type { PolicyRevision } from '#contracts/policy/policy-record.js';
import { type ItemCounts, type PolicyEvent, type RevisionFacts, VIAS } from '#contracts/policy/revision.js';
import { count, instant, text } from '#store/records/record-fields.js';
import { type PolicyRow, recordOf } from './policy-row.js';

const event: z.ZodType<PolicyEvent> = z.object({
  by: text,
  at: instant,
  comment: text.exactOptional(),
  overrides: z.array(text).exactOptional(),
  generation: count.exactOptional(),
});
const counts: z.ZodType<ItemCounts> = z.object({ added: count, changed: count, removed: count });
const facts: z.ZodType<RevisionFacts> = z.object({
  via: z.enum(VIAS).exactOptional(),
  comment: text.exactOptional(),
  source_group: text.exactOptional(),
  of_revision: count.exactOptional(),
  size: z.object({ groups: counts, rules: counts, other: z.boolean() }).exactOptional(),
  overrides: z.array(text).exactOptional(),
  generation: count.exactOptional(),
  bytes: count.exactOptional(),
  activated: event.exactOptional(),
  removed: event.exactOptional(),
});
const stored = z.looseObject({ revision: count });

/**
 * Returns the facts about the revision of a row. Returns no facts if the row has none, if a newer build wrote
 * them in another form, or if they describe another revision: a build without facts copies them when it makes
 * a new revision of a former row.
 */
export function factsOf({ facts: found, revision }: PolicyRow): RevisionFacts {
  if (found === undefined || stored.safeParse(found).data?.revision !== revision) return {};
  return facts.safeParse(found).data ?? {};
}

/**
 * Returns a policy record with new facts for the history (such as author and comment), which replace its
 * earlier facts.
 */
export function withFacts(row: PolicyRow, of: RevisionFacts): PolicyRow {
  return { ...row, facts: { revision: row.revision, ...of } };
}

export function revisionOf(row: PolicyRow, active: boolean): PolicyRevision {
  return { ...recordOf(row, active), facts: factsOf(row) };
}
