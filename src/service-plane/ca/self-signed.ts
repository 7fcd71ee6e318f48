import { generateKeyPairSync } from 'node:crypto';
import * as der from './der-writer.js';
import { named, pemOf, publicKeyInfo, signedCertificate, signerOf } from './signed-certificate.js';

const EPOCH = new Date(0);
/** The end of a certificate without a well-defined expiration date (RFC 5280, 4.1.2.5). */
const NEVER = new Date('9999-12-31T23:59:59Z');

/** Returns a new P-256 key and its self-signed certificate, both in PEM. The certificate does not expire. */
export function selfSigned(commonName: string): { readonly cert: string; readonly key: string } {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const name = named(commonName);
  const certificate = signedCertificate(
    {
      issuer: name,
      subject: name,
      notBefore: EPOCH,
      notAfter: NEVER,
      publicKey: der.encodedSequence(publicKeyInfo(privateKey)),
      extensions: [],
    },
    signerOf(privateKey),
  );
  return { cert: pemOf(certificate), key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
}
