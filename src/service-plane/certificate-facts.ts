import { createHash } from 'node:crypto';
import type { CertificateFacts } from '#contracts/tls-facts.js';
import { type Certificate, readCertificate } from './certificate/certificate.js';
import { dnsNamesOf } from './certificate/certificate-extensions.js';
import { leadsTo } from './certificate/chain.js';
import { anchorsOf, systemAnchors, type TrustAnchors } from './certificate/trust-anchors.js';

const CERTIFICATES = 10;
const BYTES = 102_400;

export type CertificateOptions = {
  /** Replaces the root certificates of the system, for tests. */
  readonly roots?: () => TrustAnchors;
  readonly nowMs?: () => number;
};

/**
 * Reads the facts of a server's certificates, given in DER with the leaf first. Returns `unreadable` without
 * a leaf, for more than 10 certificates, and for more than 100 KiB. Also returns `unreadable` if OpenSSL or
 * `readCertificate` rejects the leaf. Skips other certificates that are unreadable. Never throws.
 */
export function readCertificateFacts(
  ders: readonly Uint8Array[],
  { roots = systemAnchors, nowMs = Date.now }: CertificateOptions = {},
): CertificateFacts {
  const [leaf] = ders;
  const bytes = ders.reduce((sum, { length }) => sum + length, 0);
  if (leaf === undefined || ders.length > CERTIFICATES || bytes > BYTES) return UNREADABLE;
  const certificate = readable(leaf);
  if (certificate === null) return UNREADABLE;
  const others = ders.slice(1).map(readable);
  const chain = [certificate, ...others.filter((other) => other !== null)];
  try {
    return {
      kind: 'seen',
      subject: certificate.subject.text,
      commonNames: certificate.subject.commonNames,
      dnsNames: dnsNamesOf(certificate),
      fingerprint: createHash('sha256').update(leaf).digest('hex'),
      isTrusted: (pems) => leadsTo(pems === null ? roots() : anchorsOf(pems), chain, nowMs()),
    };
  } catch {
    return UNREADABLE;
  }
}

const UNREADABLE: CertificateFacts = { kind: 'unreadable' };

function readable(der: Uint8Array): Certificate | null {
  try {
    return readCertificate(der);
  } catch {
    return null;
  }
}
