import { X509Certificate } from 'node:crypto';
import { ownAddresses } from '#dns/own-addresses.js';
import { type ReadContext, type ReadPolicy, readPolicy } from '#policy/check/read-policy.js';
import type { PolicySurroundings, PolicyText } from './policy-work.js';

/**
 * Returns the addresses of the node as part of a `ReadContext`, because some warnings depend on them. Omits
 * them if the datapath does not classify packets to and from the node.
 */
export function nodeOf({ policesNode }: PolicySurroundings): Pick<ReadContext, 'ownAddresses'> {
  return policesNode ? { ownAddresses: ownAddresses() } : {};
}

export function readText(
  { body, form, recordMode }: PolicyText,
  surroundings: PolicySurroundings,
  integrations: readonly string[] | null,
  before: Pick<ReadContext, 'containingGroups' | 'isStored'> = {},
): ReadPolicy {
  return readPolicy(body, {
    ...surroundings,
    ...nodeOf(surroundings),
    form,
    recordMode,
    integrations: integrations === null ? undefined : new Set(integrations),
    parseCertificate,
    ...before,
  });
}

/**
 * Parses a PEM certificate. Returns undefined for a valid certificate, and otherwise a sentence about the
 * fault.
 */
export function parseCertificate(pem: string): string | undefined {
  try {
    new X509Certificate(pem);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
