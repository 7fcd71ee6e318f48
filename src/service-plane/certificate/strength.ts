import type { Certificate } from './certificate.js';
import { membersOf, readDerValue, TAG } from './der-reader.js';
import { readObjectIdentifier } from './object-identifier.js';

const RSA_BITS = 2048;
const RSA_PSS = '1.2.840.113549.1.1.10';
const HASH_ALGORITHM = 0xa0;

/** SHA-224 to SHA-512 with RSA, ECDSA, Ed25519, Ed448. */
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

/** SHA-224 to SHA-512. */
const HASHES: ReadonlySet<string> = new Set([
  '2.16.840.1.101.3.4.2.4',
  '2.16.840.1.101.3.4.2.1',
  '2.16.840.1.101.3.4.2.2',
  '2.16.840.1.101.3.4.2.3',
]);

/** Curves of 224 bits or more. */
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
 * Whether a certificate's signature uses neither MD5 nor SHA-1.
 * @throws DerFault
 */
export function isStronglySigned({ signatureAlgorithm }: Certificate): boolean {
  const [algorithm, parameters] = membersOf(signatureAlgorithm);
  const oid = readObjectIdentifier(algorithm);
  if (oid !== RSA_PSS) return SIGNATURES.has(oid);
  // RFC 4055, 3.1: an absent hash algorithm means SHA-1.
  const hash = membersOf(parameters).find(({ tag }) => tag === HASH_ALGORITHM);
  return hash !== undefined && HASHES.has(readObjectIdentifier(membersOf(readDerValue(hash.content, TAG.sequence))[0]));
}

/** @throws Error for a key that OpenSSL does not support. */
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
