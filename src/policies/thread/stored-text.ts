import { etagOf, type PolicyRecord, type StoredPolicy } from '#contracts/policy/policy-record.js';
import type { PolicyText } from './policy-work.js';

/**
 * Returns a stored policy as the text of a task for the policy thread. The store contains only the
 * PolicyConfig. For a record in envelope form, the function builds the envelope (policy with name and mode)
 * with `mode` and `policy` again.
 */
export function storedText({ record, body }: StoredPolicy): PolicyText {
  const { form, mode } = record;
  if (form === 'singleton') return { body, form, recordMode: mode };
  const head = Buffer.from(`{"mode":"${mode}","policy":`);
  return { body: Buffer.concat([head, body, Buffer.from('}')]), form, recordMode: mode };
}

/**
 * Converts the JSON pointer of a problem or warning: from a pointer into the text of `storedText` to a
 * pointer into the response of `GET /api/v1/policies/:id`.
 */
export function inRecord({ form }: Pick<PolicyText, 'form'>) {
  return <T extends { readonly pointer: string }>(told: T): T =>
    form === 'envelope' ? told : { ...told, pointer: `/policy${told.pointer}` };
}

/**
 * Returns the cache key of the text of a record in the policy thread. The revision alone does not identify
 * the text: the cache also contains texts whose write was refused, and another node may have written other
 * text with the same revision.
 */
export function textKey(record: Pick<PolicyRecord, 'id' | 'revision' | 'updated_at'>): string {
  return `${etagOf(record)} ${record.updated_at}`;
}
