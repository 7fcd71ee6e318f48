import type { StoredPolicy } from '#contracts/policy-record.js';
import type { PolicyText } from './policy-work.js';

/**
 * Returns a stored policy as input for the task `prepare`. The store contains only the PolicyConfig, so an
 * envelope gets its `mode` and `policy` members again.
 */
export function storedText({ record, body }: StoredPolicy): PolicyText {
  const { form, mode } = record;
  if (form === 'singleton') return { body, form, recordMode: mode };
  const head = Buffer.from(`{"mode":"${mode}","policy":`);
  return { body: Buffer.concat([head, body, Buffer.from('}')]), form, recordMode: mode };
}

/**
 * Converts a JSON pointer into the stored text to a JSON pointer into the response of `GET
 * /api/v1/policies/:id`.
 */
export function inRecord({ form }: Pick<PolicyText, 'form'>) {
  return <T extends { readonly pointer: string }>(told: T): T =>
    form === 'envelope' ? told : { ...told, pointer: `/policy${told.pointer}` };
}
