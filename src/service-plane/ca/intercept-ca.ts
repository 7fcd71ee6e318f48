import { type KeyObject, X509Certificate } from 'node:crypto';
import { readCertificate } from '../certificate/certificate.js';

/**
 * The CA that signs the leaf certificates of intercepted connections. The value can be sent to other threads.
 */
export type InterceptCa = {
  readonly certPem: string;
  /**
   * The certificates from the issuer of the CA up to the root, as PEM. Empty if the CA is a root, or if the
   * operator gave only the certificate of the CA.
   */
  readonly chainPem: string;
  readonly key: KeyObject;
  /** The subject of the CA certificate in the string form of RFC 4514. */
  readonly subject: string;
  /** The SHA-256 of the CA certificate's DER: 64 hexadecimal digits in lower case. */
  readonly fingerprint: string;
  readonly notBefore: Date;
  readonly notAfter: Date;
};

/**
 * Combines a CA certificate, its issuers (`chainPem`) and its key. `readCa` checks that the key belongs to
 * the certificate; this function does not.
 */
export function interceptCaOf(certPem: string, chainPem: string, key: KeyObject): InterceptCa {
  return { certPem, chainPem, key, ...describeCa(certPem) };
}

/** Returns the facts of a CA certificate that may be shown to users. */
export function describeCa(certPem: string): Pick<InterceptCa, 'subject' | 'fingerprint' | 'notBefore' | 'notAfter'> {
  const certificate = new X509Certificate(certPem);
  return {
    subject: readCertificate(certificate.raw).subject.text,
    fingerprint: certificate.fingerprint256.replaceAll(':', '').toLowerCase(),
    notBefore: new Date(certificate.validFrom),
    notAfter: new Date(certificate.validTo),
  };
}

/**
 * Returns the certificates that the node sends to a client after an intercepted leaf certificate, as PEM.
 * Root certificates are left out, because clients already have them.
 */
export function shownChainOf({ certPem, chainPem }: InterceptCa): string {
  return certificatesIn(certPem + chainPem)
    .filter((pem) => !isRoot(pem))
    .join('');
}

const BLOCK = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** Returns the certificate blocks of a PEM text, each with a line break at the end. */
export function certificatesIn(pem: string): string[] {
  return (pem.match(BLOCK) ?? []).map((block) => `${block}\n`);
}

/** Returns a PEM text without its certificate blocks. */
export const outsideCertificates = (pem: string): string => pem.replace(BLOCK, '');

function isRoot(pem: string): boolean {
  const certificate = new X509Certificate(pem);
  return certificate.checkIssued(certificate);
}
