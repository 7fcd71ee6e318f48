import type { Certificate } from './certificate.js';
import { DerFault, expected, membersOf, readDerValue, readObjectIdentifier, TAG } from './der-reader.js';

export const EXTENSION = {
  subjectKeyIdentifier: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  nameConstraints: '2.5.29.30',
  certificatePolicies: '2.5.29.32',
  authorityKeyIdentifier: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
} as const;

/** Bits of the first byte of the keyUsage extension (RFC 5280, 4.2.1.3). */
export const KEY_USAGE = { digitalSignature: 0x80, keyEncipherment: 0x20, keyAgreement: 0x08, certSign: 0x04 } as const;

const DNS_NAME = 0x82;

/**
 * Returns the dNSName entries of the subjectAltName extension, in lower case, without a dot at the end.
 * @throws DerFault if the DER is invalid, or if a name contains a byte that is no printable ASCII character.
 */
export function dnsNamesOf({ extensions }: Certificate): readonly string[] {
  const extension = extensions.get(EXTENSION.subjectAltName);
  if (extension === undefined) return [];
  return membersOf(readDerValue(extension.value, TAG.sequence))
    .filter(({ tag }) => tag === DNS_NAME)
    .map(({ content }) => {
      const name = Buffer.from(content).toString('latin1').toLowerCase();
      if (!/^[\x21-\x7e]+$/.test(name)) throw new DerFault('the certificate has an invalid DNS name');
      return name.endsWith('.') ? name.slice(0, -1) : name;
    });
}

/**
 * Returns the path length limit of a CA certificate; null if the certificate may not sign other certificates.
 * @throws DerFault if the DER is invalid.
 */
export function authorityOf({ extensions }: Certificate): { readonly pathLength: number } | null {
  const extension = extensions.get(EXTENSION.basicConstraints);
  if (extension === undefined) return null;
  const [authority, length] = membersOf(readDerValue(extension.value, TAG.sequence));
  if (authority?.tag !== TAG.boolean || authority.content[0] === 0) return null;
  if (length === undefined) return { pathLength: Number.POSITIVE_INFINITY };
  const [value = 0x80, ...more] = expected(length, TAG.integer).content;
  if (more.length > 0 || value >= 0x80) throw new DerFault('the certificate has an invalid path length');
  return { pathLength: value };
}

/**
 * Returns true if the keyUsage extension permits at least one of `usages`, or if there is no keyUsage
 * extension.
 * @throws DerFault if the DER is invalid.
 */
export function mayUseKey({ extensions }: Certificate, usages: number): boolean {
  const extension = extensions.get(EXTENSION.keyUsage);
  if (extension === undefined) return true;
  const { content } = readDerValue(extension.value, TAG.bitString);
  return ((content[1] ?? 0) & usages) !== 0;
}

/**
 * Returns true if the extendedKeyUsage extension permits the use for a TLS server, or if there is no such
 * extension. As in OpenSSL, the usage anyExtendedKeyUsage is not enough.
 */
export function mayServe({ extensions }: Certificate): boolean {
  const extension = extensions.get(EXTENSION.extendedKeyUsage);
  if (extension === undefined) return true;
  return membersOf(readDerValue(extension.value, TAG.sequence)).map(readObjectIdentifier).includes(SERVER_AUTH);
}

const SERVER_AUTH = '1.3.6.1.5.5.7.3.1';
