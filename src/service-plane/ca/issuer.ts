import { elementOf, elementsOf } from './element.js';

/** What a certificate says of who signed it. */
export type Issuer = {
  /** The DER of its name: copied, as verifiers compare bytes. */
  readonly name: Buffer;
  /** Null where its certificate has none. */
  readonly keyId: Buffer | null;
};

const VERSION = 0xa0;
const EXTENSIONS = 0xa3;
const SUBJECT_KEY_ID = Buffer.from([0x55, 0x1d, 0x0e]);

/** Reads the issuer's own certificate: DER that OpenSSL has read already. */
export function issuerOf(certificate: Buffer): Issuer {
  const parts = elementsOf(elementOf(elementOf(certificate).content).content);
  const subject = parts[parts[0]?.tag === VERSION ? 5 : 4];
  if (subject === undefined) throw new RangeError('read a certificate: it has no subject');
  const extensions = parts.find(({ tag }) => tag === EXTENSIONS);
  return { name: subject.whole, keyId: extensions === undefined ? null : subjectKeyId(extensions.content) };
}

function subjectKeyId(extensions: Buffer): Buffer | null {
  for (const extension of elementsOf(elementOf(extensions).content)) {
    const members = elementsOf(extension.content);
    const value = members.at(-1);
    if (members[0]?.content.equals(SUBJECT_KEY_ID) === true && value !== undefined)
      return elementOf(value.content).content;
  }
  return null;
}
