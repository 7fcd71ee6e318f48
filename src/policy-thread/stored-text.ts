import type { StoredPolicy } from '#contracts/policy-record.js';
import type { PolicyText } from './policy-work.js';

/** A stored policy as input for `prepare`: an envelope is stored without its envelope fields. */
export function storedText({ record, body }: StoredPolicy): PolicyText {
  const { form, mode } = record;
  if (form === 'singleton') return { body, form, recordMode: mode };
  const head = Buffer.from(`{"mode":"${mode}","policy":`);
  return { body: Buffer.concat([head, body, Buffer.from('}')]), form, recordMode: mode };
}

/**
 * Moves the pointer of a problem of a stored text to its place in the record of `GET /api/v1/policies/:id`.
 */
export function inRecord({ form }: Pick<PolicyText, 'form'>) {
  return <T extends { readonly pointer: string }>(told: T): T =>
    form === 'envelope' ? told : { ...told, pointer: `/policy${told.pointer}` };
}
