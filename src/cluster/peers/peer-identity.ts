import { X509Certificate } from 'node:crypto';

/** The certificate and the key with which a node proves to other nodes which node it is, in PEM. */
export type PeerIdentity = {
  readonly cert: string | Buffer;
  readonly key: string | Buffer;
  /** The CA certificates that must have signed the certificates of other nodes. Null: any certificate. */
  readonly ca: string | Buffer | null;
};

/** Returns the SHA-256 fingerprint of a certificate in PEM or DER: 64 hexadecimal digits. */
export function fingerprintOf(certificate: string | Buffer): string {
  return new X509Certificate(certificate).fingerprint256.replaceAll(':', '').toLowerCase();
}
