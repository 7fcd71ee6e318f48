import { type ReadPolicy, readPolicy } from '#policy/read.js';
import type { SourceHolders } from '#policy/source-holders.js';
import { parseCertificate } from './parse-certificate.js';
import type { PolicySurroundings, PolicyText } from './policy-work.js';

export function readText(
  { body, form, recordMode }: PolicyText,
  surroundings: PolicySurroundings,
  integrations: readonly string[] | null,
  holders?: SourceHolders,
): ReadPolicy {
  return readPolicy(body, {
    ...surroundings,
    form,
    recordMode,
    integrations: integrations === null ? undefined : new Set(integrations),
    parseCertificate,
    ...(holders === undefined ? {} : { holders }),
  });
}
