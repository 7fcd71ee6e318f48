import type { Certificate } from './certificate.js';
import { membersOf, readDerValue, readObjectIdentifier, TAG } from './der-reader.js';

const RSA_BITS = 2048;
const RSA_PSS = '1.2.840.113549.1.1.10';
const HASH_ALGORITHM = 0xa0;

/**
 * Object identifiers of accepted signature algorithms: RSA and ECDSA with SHA-224 to SHA-512, Ed25519, and
 * Ed448.
 */
const SIGNATURES: ReadonlySet<string> = new Set([
  '1.2.840.113549.1.1.14',
  '1.2.840.113549.1.1.11',
  '1.2.840.113549.1.1.12',
  '1.2.840.113549.1.1.13',
  '1.2.840.10045.4.3.1',
  '1.2.840.10045.4.3.2',
  '1.2.840.10045.4.3.3',
  '1.2.840.10045.4.3.4',
  '1.3.101.112',
  '1.3.101.113',
]);

/** Object identifiers of the hash algorithms SHA-224 to SHA-512. */
const HASHES: ReadonlySet<string> = new Set([
  '2.16.840.1.101.3.4.2.4',
  '2.16.840.1.101.3.4.2.1',
  '2.16.840.1.101.3.4.2.2',
  '2.16.840.1.101.3.4.2.3',
]);

/** Accepted elliptic curves: all have at least 224 bits. */
const CURVES: ReadonlySet<string> = new Set([
  'secp224r1',
  'secp224k1',
  'secp256k1',
  'prime256v1',
  'secp384r1',
  'secp521r1',
  'brainpoolP224r1',
  'brainpoolP256r1',
  'brainpoolP320r1',
  'brainpoolP384r1',
  'brainpoolP512r1',
]);

/**
 * Returns true if the signature on a certificate uses a hash algorithm stronger than MD5 and SHA-1.
 * @throws DerFault if the algorithm identifier is invalid.
 */
export function isStronglySigned({ signatureAlgorithm }: Certificate): boolean {
  const [algorithm, parameters] = membersOf(signatureAlgorithm);
  const oid = readObjectIdentifier(algorithm);
  if (oid !== RSA_PSS) return SIGNATURES.has(oid);
  // RFC 4055, 3.1: without a hash algorithm in the parameters, RSA-PSS uses SHA-1, which is rejected.
  const hash = membersOf(parameters).find(({ tag }) => tag === HASH_ALGORITHM);
  return hash !== undefined && HASHES.has(readObjectIdentifier(membersOf(readDerValue(hash.content, TAG.sequence))[0]));
}

/**
 * Returns true if the public key has at least the strength of RSA with 2048 bits, or of a curve with 224
 * bits.
 * @throws Error if OpenSSL does not support the key.
 */
export function hasStrongKey({ x509 }: Certificate): boolean {
  const { asymmetricKeyType, asymmetricKeyDetails } = x509.publicKey;
  switch (asymmetricKeyType) {
    case 'rsa':
    case 'rsa-pss':
      return (asymmetricKeyDetails?.modulusLength ?? 0) >= RSA_BITS;
    case 'ec':
      return CURVES.has(asymmetricKeyDetails?.namedCurve ?? '');
    case 'ed25519':
    case 'ed448':
      return true;
    default:
      return false;
  }
}
