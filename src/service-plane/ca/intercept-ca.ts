import { type KeyObject, X509Certificate } from 'node:crypto';
import { readCertificate } from '../certificate/certificate.js';

/** The CA that signs for intercepted connections. A value that threads can be sent. */
export type InterceptCa = {
  readonly certPem: string;
  /** The certificates above it, its issuer first; empty where it is a root, or nobody gave them. */
  readonly chainPem: string;
  readonly key: KeyObject;
  /** As RFC 4514 writes it. */
  readonly subject: string;
  /** SHA-256 of its DER: 64 hex digits in lower case. */
  readonly fingerprint: string;
  readonly notBefore: Date;
  readonly notAfter: Date;
};

/** Of a certificate and a key that belong together; `readCa` judges whether they do. */
export function interceptCaOf(certPem: string, chainPem: string, key: KeyObject): InterceptCa {
  return { certPem, chainPem, key, ...describeCa(certPem) };
}

/** What is told of a CA. */
export function describeCa(certPem: string): Pick<InterceptCa, 'subject' | 'fingerprint' | 'notBefore' | 'notAfter'> {
  const certificate = new X509Certificate(certPem);
  return {
    subject: readCertificate(certificate.raw).subject.text,
    fingerprint: certificate.fingerprint256.replaceAll(':', '').toLowerCase(),
    notBefore: new Date(certificate.validFrom),
    notAfter: new Date(certificate.validTo),
  };
}

/** What is sent behind a leaf: clients have the root, and need what is between. */
export function shownChainOf({ certPem, chainPem }: InterceptCa): string {
  return certificatesIn(certPem + chainPem)
    .filter((pem) => !isRoot(pem))
    .join('');
}

const BLOCK = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** The blocks of a PEM text, each with a line break behind it. */
export function certificatesIn(pem: string): string[] {
  return (pem.match(BLOCK) ?? []).map((block) => `${block}\n`);
}

/** What stands in a PEM text besides certificates. */
export const outsideCertificates = (pem: string): string => pem.replace(BLOCK, '');

function isRoot(pem: string): boolean {
  const certificate = new X509Certificate(pem);
  return certificate.checkIssued(certificate);
}
