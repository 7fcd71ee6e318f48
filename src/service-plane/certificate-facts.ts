import { createHash } from 'node:crypto';
import type { CertificateFacts } from '#contracts/tls-facts.js';
import { type Certificate, readCertificate } from './certificate/certificate.js';
import { dnsNamesOf } from './certificate/certificate-extensions.js';
import { leadsTo } from './certificate/chain.js';
import { anchorsOf, systemAnchors, type TrustAnchors } from './certificate/trust-anchors.js';

const CERTIFICATES = 10;
const BYTES = 102_400;

export type CertificateOptions = {
  /** Replaces the roots of the system, for tests. */
  readonly roots?: () => TrustAnchors;
  readonly nowMs?: () => number;
};

/**
 * Reads the facts of a server's certificates, in DER, leaf first. Returns `unreadable` for no certificate,
 * for more than 10 certificates or 100 KiB, and for a leaf that OpenSSL or the reader of its names rejects.
 * Other unreadable certificates are skipped. Never throws.
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
