import type { StoredPolicy } from '#policy/record.js';
import type { PolicyText } from './policy-work.js';

/** A stored policy as it is read again: what is kept of an envelope is the policy alone. */
export function storedText({ record, body }: StoredPolicy): PolicyText {
  const { form, mode } = record;
  if (form === 'singleton') return { body, form, recordMode: mode };
  const head = Buffer.from(`{"mode":"${mode}","policy":`);
  return { body: Buffer.concat([head, body, Buffer.from('}')]), form, recordMode: mode };
}
