import { X509Certificate } from 'node:crypto';

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
