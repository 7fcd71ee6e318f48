import { X509Certificate } from 'node:crypto';
import {
  DerFault,
  type DerValue,
  expected,
  membersOf,
  readDer,
  readDerValue,
  readObjectIdentifier,
  TAG,
} from './der-reader.js';
import { DistinguishedName } from './distinguished-name.js';

const CONTEXT_0 = 0xa0;
const EXTENSIONS = 0xa3;

type Extension = { readonly isCritical: boolean; readonly value: Uint8Array };

/**
 * A certificate (RFC 5280, 4.1) that OpenSSL and `readCertificate` accept. OpenSSL also accepts BER;
 * `readCertificate` accepts DER only.
 */
export type Certificate = {
  readonly x509: X509Certificate;
  /** The X.509 version: 1, 2 or 3. */
  readonly version: number;
  readonly subject: DistinguishedName;
  readonly issuer: DistinguishedName;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** The AlgorithmIdentifier of the signature on this certificate. */
  readonly signatureAlgorithm: DerValue;
  /** The extensions of the certificate. The keys are object identifiers. */
  readonly extensions: ReadonlyMap<string, Extension>;
};

/**
 * Reads a certificate from DER.
 * @throws Error if the bytes are not a valid certificate.
 */
export function readCertificate(der: Uint8Array): Certificate {
  const x509 = new X509Certificate(der);
  const [tbs, signatureAlgorithm] = membersOf(readDerValue(der, TAG.sequence));
  const fields = membersOf(tbs);
  const version = fields[0]?.tag === CONTEXT_0 ? versionOf(fields[0]) : 1;
  const [, inner, issuer, , subject, , ...rest] = version === 1 ? fields : fields.slice(1);
  const algorithm = expected(signatureAlgorithm, TAG.sequence);
  // RFC 5280, 4.1.1.2: the signature algorithm inside the signed data must equal the signature algorithm
  // outside.
  if (Buffer.compare(algorithm.bytes, expected(inner, TAG.sequence).bytes) !== 0)
    throw new DerFault('the certificate names two different signature algorithms');
  const extensions = rest.find(({ tag }) => tag === EXTENSIONS);
  return {
    x509,
    version,
    subject: new DistinguishedName(expected(subject, TAG.sequence).bytes),
    issuer: new DistinguishedName(expected(issuer, TAG.sequence).bytes),
    notBeforeMs: dateOf(x509.validFrom),
    notAfterMs: dateOf(x509.validTo),
    signatureAlgorithm: algorithm,
    extensions: extensions === undefined ? new Map() : readExtensions(extensions),
  };
}

function versionOf(explicit: DerValue): number {
  const { content } = readDerValue(explicit.content, TAG.integer);
  const [version = 0] = content;
  if (content.length !== 1 || (version !== 1 && version !== 2))
    throw new DerFault('the certificate has an unknown version');
  return version + 1;
}

function dateOf(text: string): number {
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) throw new DerFault(`the certificate has an invalid date: ${text}`);
  return ms;
}

function readExtensions(explicit: DerValue): ReadonlyMap<string, Extension> {
  const extensions = new Map<string, Extension>();
  for (const member of membersOf(readDerValue(explicit.content, TAG.sequence))) {
    const [type, ...fields] = readDer(expected(member, TAG.sequence).content);
    const critical = fields[0]?.tag === TAG.boolean ? fields[0] : undefined;
    const [value, more] = critical === undefined ? fields : fields.slice(1);
    const oid = readObjectIdentifier(type);
    if (extensions.has(oid) || more !== undefined) throw new DerFault(`extension ${oid} is repeated or malformed`);
    const isCritical = critical !== undefined && critical.content[0] !== 0;
    extensions.set(oid, { isCritical, value: expected(value, TAG.octetString).content });
  }
  return extensions;
}
