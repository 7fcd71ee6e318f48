import { generateKeyPairSync } from 'node:crypto';
import { EXTENSION, KEY_USAGE } from '#service-plane/certificate/certificate-extensions.js';
import * as der from './der-writer.js';
import { type InterceptCa, interceptCaOf } from './intercept-ca.js';
import { extension, keyIdOf, named, pemOf, publicKeyInfo, signedCertificate, signerOf } from './signed-certificate.js';

export type CaRequest = {
  /** The common name of the CA, at most 64 characters. */
  readonly commonName: string;
  readonly days: number;
};

const DAY_MS = 86_400_000;
/**
 * The validity of the certificate begins this many milliseconds before its creation, so that clients with
 * slow clocks accept the certificate.
 */
const BACKDATED_MS = 3_600_000;
const CRL_SIGN = 0x02;

/**
 * Creates a self-signed root certificate with a P-256 key. The CA may sign leaf certificates, but no CA
 * certificates.
 */
export function generateCa({ commonName, days }: CaRequest, now: Date = new Date()): InterceptCa {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const spki = publicKeyInfo(privateKey);
  const name = named(commonName);
  const noCaBelow = der.integer(Buffer.of(0));
  const certificate = signedCertificate(
    {
      issuer: name,
      subject: name,
      notBefore: new Date(now.getTime() - BACKDATED_MS),
      notAfter: new Date(now.getTime() + days * DAY_MS),
      publicKey: der.encodedSequence(spki),
      extensions: [
        extension(EXTENSION.basicConstraints, true, der.sequence(der.yes(), noCaBelow)),
        extension(EXTENSION.keyUsage, true, der.bits(Buffer.of(KEY_USAGE.certSign | CRL_SIGN), 1)),
        extension(EXTENSION.subjectKeyIdentifier, false, der.octets(keyIdOf(spki))),
      ],
    },
    signerOf(privateKey),
  );
  return interceptCaOf(pemOf(certificate), '', privateKey);
}
