import { createHash } from 'node:crypto';
import type { CertificateFacts } from '#contracts/service-plane/tls-facts.js';
import { type Certificate, readCertificate } from './certificate.js';
import { dnsNamesOf } from './certificate-extensions.js';
import { leadsTo } from './chain.js';
import { anchorsOf, type TrustAnchors } from './trust-anchors.js';

const CERTIFICATES = 10;
const BYTES = 102_400;

export type CertificateOptions = {
  /** Returns the root certificates for rules without trust anchors: those of the setting `upstream_ca`. */
  readonly roots: () => TrustAnchors;
  readonly nowMs?: () => number;
};

/**
 * Reads the subject, names and fingerprint of a server's leaf certificate. `ders` contains the server's
 * certificates in DER, leaf first. Returns `unreadable` if there is no leaf, if Weir cannot read the leaf or
 * its names, for more than 10 certificates, and for more than 100 KiB. Ignores other certificates that Weir
 * cannot read. Never throws.
 */
export function readCertificateFacts(
  ders: readonly Uint8Array[],
  { roots, nowMs = Date.now }: CertificateOptions,
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
