import { type KeyObject, X509Certificate } from 'node:crypto';
import { isIPv4 } from 'node:net';
import { EXTENSION, KEY_USAGE } from '#service-plane/certificate/certificate-extensions.js';
import { readDerValue, TAG } from '#service-plane/certificate/der-reader.js';
import { readCertificate } from '../certificate/certificate.js';
import * as der from './der-writer.js';
import type { InterceptCa } from './intercept-ca.js';
import { extension, keyIdOf, named, pemOf, publicKeyInfo, signedCertificate, signerOf } from './signed-certificate.js';

const HOUR_MS = 3_600_000;
const BACKDATED_MS = HOUR_MS;
const LIFE_MS = 7 * 24 * HOUR_MS;
/** The maximum length of a common name, in characters (RFC 5280, ub-common-name). */
const MAX_COMMON_NAME_LENGTH = 64;
const DNS_NAME = 2;
const IP_ADDRESS = 7;
const SERVER_AUTH = '1.3.6.1.5.5.7.3.1';

type Leaf = { readonly certPem: string; readonly notBefore: Date; readonly notAfter: Date };
/** Creates a leaf certificate for a host name or an IPv4 address. `now` is the current time. */
export type LeafMint = (name: string, now: Date) => Leaf;

/**
 * Returns a function that creates leaf certificates for the public key of `leafKey`, an EC key, and signs
 * them with `ca`. All leaf certificates have the same key, because creating and parsing one key per
 * certificate would cost more than the other work.
 */
export function createLeafMint(ca: InterceptCa, leafKey: KeyObject): LeafMint {
  const issuer = readCertificate(new X509Certificate(ca.certPem).raw);
  const issuerKeyId = issuer.extensions.get(EXTENSION.subjectKeyIdentifier);
  const signer = signerOf(ca.key);
  const spki = publicKeyInfo(leafKey);
  const publicKey = der.encodedSequence(spki);
  const issuerName = der.encodedSequence(issuer.subject.bytes);
  const constant = [
    extension(EXTENSION.basicConstraints, true, der.sequence()),
    extension(EXTENSION.keyUsage, true, der.bits(Buffer.of(KEY_USAGE.digitalSignature), 7)),
    extension(EXTENSION.extendedKeyUsage, false, der.sequence(der.oid(SERVER_AUTH))),
    extension(EXTENSION.subjectKeyIdentifier, false, der.octets(keyIdOf(spki))),
    ...(issuerKeyId === undefined
      ? []
      : [extension(EXTENSION.authorityKeyIdentifier, false, authorityKeyId(issuerKeyId.value))]),
  ].map((made) => der.encodedSequence(der.bytesOf(made)));

  return (name, now) => {
    const notBefore = new Date(Math.max(now.getTime() - BACKDATED_MS, ca.notBefore.getTime()));
    const notAfter = new Date(Math.min(now.getTime() + LIFE_MS, ca.notAfter.getTime()));
    const commonName = name.length > MAX_COMMON_NAME_LENGTH ? null : name;
    const names = isIPv4(name)
      ? der.implicit(IP_ADDRESS, Buffer.from(name.split('.').map(Number)))
      : der.implicit(DNS_NAME, Buffer.from(name, 'latin1'));
    const certificate = signedCertificate(
      {
        issuer: issuerName,
        subject: named(commonName),
        notBefore,
        notAfter,
        publicKey,
        // RFC 5280, 4.2.1.6: the subjectAltName extension must be critical if the subject is empty.
        extensions: [...constant, extension(EXTENSION.subjectAltName, commonName === null, der.sequence(names))],
      },
      signer,
    );
    return { certPem: pemOf(certificate), notBefore, notAfter };
  };
}

/**
 * Returns the authorityKeyIdentifier of a leaf certificate. The value must equal the issuer's
 * subjectKeyIdentifier byte for byte, because TLS clients may find the issuer by this value.
 */
function authorityKeyId(subjectKeyId: Uint8Array): der.Der {
  return der.sequence(der.implicit(0, readDerValue(subjectKeyId, TAG.octetString).content));
}
