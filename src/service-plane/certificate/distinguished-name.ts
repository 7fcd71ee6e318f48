import { DerFault, type DerValue, membersOf, readDerValue, readObjectIdentifier, TAG } from './der-reader.js';

/**
 * The keywords that OpenSSL writes for attribute types. RFC 4514, section 3 defines some of these keywords.
 */
const KEYWORDS: ReadonlyMap<string, string> = new Map([
  ['2.5.4.3', 'CN'],
  ['2.5.4.4', 'SN'],
  ['2.5.4.5', 'serialNumber'],
  ['2.5.4.6', 'C'],
  ['2.5.4.7', 'L'],
  ['2.5.4.8', 'ST'],
  ['2.5.4.9', 'street'],
  ['2.5.4.10', 'O'],
  ['2.5.4.11', 'OU'],
  ['2.5.4.12', 'title'],
  ['2.5.4.13', 'description'],
  ['2.5.4.15', 'businessCategory'],
  ['2.5.4.17', 'postalCode'],
  ['2.5.4.41', 'name'],
  ['2.5.4.42', 'GN'],
  ['2.5.4.43', 'initials'],
  ['2.5.4.44', 'generationQualifier'],
  ['2.5.4.46', 'dnQualifier'],
  ['2.5.4.65', 'pseudonym'],
  ['2.5.4.97', 'organizationIdentifier'],
  ['0.9.2342.19200300.100.1.1', 'UID'],
  ['0.9.2342.19200300.100.1.25', 'DC'],
  ['1.2.840.113549.1.9.1', 'emailAddress'],
  ['1.3.6.1.4.1.311.60.2.1.1', 'jurisdictionL'],
  ['1.3.6.1.4.1.311.60.2.1.2', 'jurisdictionST'],
  ['1.3.6.1.4.1.311.60.2.1.3', 'jurisdictionC'],
]);
const COMMON_NAME = '2.5.4.3';

type Attribute = { readonly type: string; readonly value: DerValue; readonly text: string | null };

/** A distinguished name: the ASN.1 type Name of RFC 5280, 4.1.2.4. */
export class DistinguishedName {
  readonly #sets: readonly (readonly Attribute[])[];

  /** @throws DerFault if the bytes are not a valid Name. */
  constructor(
    /** The DER of the name. */
    readonly bytes: Uint8Array,
  ) {
    this.#sets = membersOf(readDerValue(bytes, TAG.sequence)).map(readSet);
  }

  /**
   * The string form of RFC 4514. The text equals the output of `openssl x509 -noout -subject -nameopt
   * RFC2253,-esc_msb` after `subject=`. There is one exception: OpenSSL does not escape a value that is a
   * single `#`. RDNs are in reverse order, and so are the attributes of an RDN. An attribute type without a
   * keyword is written as an object identifier, and its value as `#` with the DER in hexadecimal.
   */
  get text(): string {
    return this.#sets
      .map((set) => set.map(attributeText).reverse().join('+'))
      .reverse()
      .join(',');
  }

  /**
   * The values of all common name attributes.
   * @throws DerFault if a common name is not text.
   */
  get commonNames(): readonly string[] {
    return this.#sets
      .flat()
      .filter(({ type }) => type === COMMON_NAME)
      .map(({ text }) => {
        if (text === null || text.includes('\0')) throw new DerFault('a common name is not a text');
        return text;
      });
  }

  /**
   * A key for comparisons. Names that are equal by RFC 5280, 7.1 have equal keys. Names that are not equal
   * may also have equal keys.
   */
  get key(): string {
    return JSON.stringify(this.#sets.map((set) => set.map(attributeKey).sort()));
  }
}

function readSet(value: DerValue): readonly Attribute[] {
  const members = membersOf(value, TAG.set);
  if (members.length === 0) throw new DerFault('a distinguished name has an empty set of attributes');
  return members.map((member) => {
    const [type, attribute, more] = membersOf(member);
    if (attribute === undefined || more !== undefined)
      throw new DerFault('an attribute of a distinguished name is not a pair of type and value');
    return { type: readObjectIdentifier(type), value: attribute, text: readText(attribute) };
  });
}

function attributeText({ type, value, text }: Attribute): string {
  const keyword = KEYWORDS.get(type);
  return keyword === undefined || text === null
    ? `${keyword ?? type}=#${Buffer.from(value.bytes).toString('hex').toUpperCase()}`
    : `${keyword}=${escaped(text)}`;
}

function attributeKey({ type, value, text }: Attribute): string {
  const folded = text?.toLowerCase().trim().replace(/\s+/g, ' ');
  return `${type}=${folded ?? Buffer.from(value.bytes).toString('hex')}`;
}

/** Escapes the special characters of RFC 4514, 2.4, and also ASCII control characters. */
function escaped(text: string): string {
  return text
    .replace(/[,+"<>;\\]|^[# ]| $/g, '\\$&')
    .replace(/\p{Cc}/gu, (character) => (isAscii(character) ? hexPair(character) : character));
}

function isAscii(character: string): boolean {
  return character <= '\x7f';
}

function hexPair(character: string): string {
  return `\\${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
}

const UTF8_STRING = 12;
/**
 * Tags of string types that are read as Latin 1: NumericString, PrintableString, TeletexString, IA5String and
 * VisibleString. The standard defines another encoding for TeletexString, but certificates contain Latin 1 in
 * practice.
 */
const BYTE_STRINGS: ReadonlySet<number> = new Set([18, 19, 20, 22, 26]);
const UNIVERSAL_STRING = 28;
const BMP_STRING = 30;

/**
 * Returns the text of a DER string value; null if the value is not a string, or if its encoding is invalid.
 */
function readText({ tag, content }: DerValue): string | null {
  if (BYTE_STRINGS.has(tag)) return Buffer.from(content).toString('latin1');
  if (tag === UTF8_STRING) return utf8(content);
  if (tag === BMP_STRING) return wide(content, 2);
  return tag === UNIVERSAL_STRING ? wide(content, 4) : null;
}

function utf8(content: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(content);
  } catch {
    return null;
  }
}

function wide(content: Uint8Array, width: 2 | 4): string | null {
  if (content.length % width !== 0) return null;
  const view = new DataView(content.buffer, content.byteOffset, content.length);
  const characters: string[] = [];
  for (let at = 0; at < content.length; at += width) {
    const point = width === 2 ? view.getUint16(at) : view.getUint32(at);
    if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return null;
    characters.push(String.fromCodePoint(point));
  }
  return characters.join('');
}
