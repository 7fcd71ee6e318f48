import { generateKeyPairSync } from 'node:crypto';
import forge from 'node-forge';

const LIFETIME_MS = 86_400_000;

/** Returns a key and a self-signed certificate for a server name, both in PEM. It is valid for a day. */
export function tourCertificate(name: string): { readonly cert: string; readonly key: string } {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2_048 });
  const key = privateKey.export({ type: 'pkcs1', format: 'pem' }).toString();
  const signer = forge.pki.privateKeyFromPem(key);
  const certificate = forge.pki.createCertificate();
  certificate.publicKey = forge.pki.setRsaPublicKey(signer.n, signer.e);
  certificate.serialNumber = '01';
  certificate.validity.notBefore = new Date(Date.now() - LIFETIME_MS);
  certificate.validity.notAfter = new Date(Date.now() + LIFETIME_MS);
  const subject = [{ name: 'commonName', value: name }];
  certificate.setSubject(subject);
  certificate.setIssuer(subject);
  certificate.setExtensions([
    { name: 'basicConstraints', cA: true },
    { name: 'subjectAltName', altNames: [{ type: 2, value: name }] },
  ]);
  certificate.sign(signer, forge.md.sha256.create());
  return { cert: forge.pki.certificateToPem(certificate), key };
}
