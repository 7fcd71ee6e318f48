import type { DerValue } from './der-reader.js';

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
export function readText({ tag, content }: DerValue): string | null {
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
