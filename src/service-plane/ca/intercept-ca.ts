import { type KeyObject, X509Certificate } from 'node:crypto';
import { readCertificate } from '../certificate/certificate.js';

/** The CA that signs for intercepted connections. The value can be sent to threads. */
export type InterceptCa = {
  readonly certPem: string;
  /** The certificates above it, its issuer first; empty if it is a root, or if none were given. */
  readonly chainPem: string;
  readonly key: KeyObject;
  /** In the form of RFC 4514. */
  readonly subject: string;
  /** SHA-256 of its DER: 64 hex digits in lower case. */
  readonly fingerprint: string;
  readonly notBefore: Date;
  readonly notAfter: Date;
};

/** Combines a certificate and its key; `readCa` checks that they belong together. */
export function interceptCaOf(certPem: string, chainPem: string, key: KeyObject): InterceptCa {
  return { certPem, chainPem, key, ...describeCa(certPem) };
}

/** The public facts of a CA. */
export function describeCa(certPem: string): Pick<InterceptCa, 'subject' | 'fingerprint' | 'notBefore' | 'notAfter'> {
  const certificate = new X509Certificate(certPem);
  return {
    subject: readCertificate(certificate.raw).subject.text,
    fingerprint: certificate.fingerprint256.replaceAll(':', '').toLowerCase(),
    notBefore: new Date(certificate.validFrom),
    notAfter: new Date(certificate.validTo),
  };
}

/** The certificates sent after a leaf: clients have the root, and need the intermediate ones. */
export function shownChainOf({ certPem, chainPem }: InterceptCa): string {
  return certificatesIn(certPem + chainPem)
    .filter((pem) => !isRoot(pem))
    .join('');
}

const BLOCK = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** The certificate blocks of a PEM text, each followed by a line break. */
export function certificatesIn(pem: string): string[] {
  return (pem.match(BLOCK) ?? []).map((block) => `${block}\n`);
}

/** The rest of a PEM text without its certificates. */
export const outsideCertificates = (pem: string): string => pem.replace(BLOCK, '');

function isRoot(pem: string): boolean {
  const certificate = new X509Certificate(pem);
  return certificate.checkIssued(certificate);
}
