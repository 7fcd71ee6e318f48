import { X509Certificate } from 'node:crypto';

/** Undefined for a certificate in PEM that parses, else what is wrong with it. */
export function parseCertificate(pem: string): string | undefined {
  try {
    new X509Certificate(pem);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
