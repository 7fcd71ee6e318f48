import type { StoredPolicy } from '#contracts/policy-record.js';
import type { PolicyText } from './policy-work.js';

/** A stored policy as it is read again: what is kept of an envelope is the policy alone. */
export function storedText({ record, body }: StoredPolicy): PolicyText {
  const { form, mode } = record;
  if (form === 'singleton') return { body, form, recordMode: mode };
  const head = Buffer.from(`{"mode":"${mode}","policy":`);
  return { body: Buffer.concat([head, body, Buffer.from('}')]), form, recordMode: mode };
}

/** The pointer of a problem of a stored text, in the record as `GET /api/v1/policies/:id` answers it. */
export function inRecord({ form }: Pick<PolicyText, 'form'>) {
  return <T extends { readonly pointer: string }>(told: T): T =>
    form === 'envelope' ? told : { ...told, pointer: `/policy${told.pointer}` };
}
