import { createHash, createPublicKey, generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto';
import { expected, membersOf, readDerValue, TAG } from '#service-plane/certificate/der-reader.js';
import * as der from './der-writer.js';

export type CertificateText = {
  /** The DER of the issuer's distinguished name. */
  readonly issuer: der.Der;
  readonly subject: der.Der;
  readonly notBefore: Date;
  readonly notAfter: Date;
  /** The DER of a SubjectPublicKeyInfo. */
  readonly publicKey: der.Der;
  readonly extensions: readonly der.Der[];
};

/** A private key that signs certificates, its digest algorithm, and its X.509 AlgorithmIdentifier. */
export type Signer = { readonly key: KeyObject; readonly digest: string; readonly algorithm: der.Der };

const ECDSA: Readonly<Record<string, readonly [digest: string, oid: string]>> = {
  prime256v1: ['sha256', '1.2.840.10045.4.3.2'],
  secp384r1: ['sha384', '1.2.840.10045.4.3.3'],
  secp521r1: ['sha512', '1.2.840.10045.4.3.4'],
};
export const CURVES: readonly string[] = Object.keys(ECDSA);

/** Returns the signer for a key that `readCa` accepts: an RSA key, or an EC key on one of `CURVES`. */
export function signerOf(key: KeyObject): Signer {
  if (key.asymmetricKeyType === 'rsa') {
    const algorithm = der.sequence(der.oid('1.2.840.113549.1.1.11'), der.nothing());
    return { key, digest: 'sha256', algorithm };
  }
  const found = ECDSA[key.asymmetricKeyDetails?.namedCurve ?? ''];
  if (found === undefined)
    throw new TypeError(`sign a certificate: a key of type ${key.asymmetricKeyType ?? 'unknown'} is not supported`);
  return { key, digest: found[0], algorithm: der.sequence(der.oid(found[1])) };
}

/** Returns the DER of a signed X.509 v3 certificate with a random serial number of 16 bytes. */
export function signedCertificate(text: CertificateText, { key, digest, algorithm }: Signer): Buffer {
  const content = der.sequence(
    der.explicit(0, der.integer(Buffer.of(2))),
    der.integer(serialNumber()),
    algorithm,
    text.issuer,
    der.sequence(der.time(text.notBefore), der.time(text.notAfter)),
    text.subject,
    text.publicKey,
    der.explicit(3, der.sequence(...text.extensions)),
  );
  const bytes = der.bytesOf(content);
  return der.bytesOf(der.sequence(der.encodedSequence(bytes), algorithm, der.bits(sign(digest, bytes, key))));
}

export function extension(id: string, critical: boolean, value: der.Der): der.Der {
  const critically = critical ? [der.yes()] : [];
  return der.sequence(der.oid(id), ...critically, der.octets(der.bytesOf(value)));
}

/** Returns a distinguished name with one common name; an empty distinguished name if `commonName` is null. */
export function named(commonName: string | null): der.Der {
  return commonName === null
    ? der.sequence()
    : der.sequence(der.set(der.sequence(der.oid('2.5.4.3'), der.utf8(commonName))));
}

export const publicKeyInfo = (key: KeyObject): Buffer => createPublicKey(key).export({ type: 'spki', format: 'der' });

/** Returns the key identifier of a public key by RFC 7093, method 1: the first 20 bytes of its SHA-256. */
export function keyIdOf(spki: Buffer): Buffer {
  const [, key] = membersOf(readDerValue(spki, TAG.sequence));
  return createHash('sha256').update(expected(key, TAG.bitString).content.subarray(1)).digest().subarray(0, 20);
}

export function pemOf(certificate: Buffer): string {
  const lines = certificate.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

/**
 * Returns 16 random bytes for a serial number. The first two bits are 01, so the number is positive, and its
 * DER always has 16 bytes.
 */
function serialNumber(): Buffer {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40;
  return bytes;
}

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
