import { u8At } from '#arrays/read.js';

const TOKEN = 1;
const TEXT = 2;
/** Marks the octets that a lower-case field name may contain: token octets except upper-case letters. */
const LOWER = 4;

const CLASSES = new Uint8Array(256);
for (let octet = 0x20; octet < 256; octet++) CLASSES[octet] = octet === 0x7f ? 0 : TEXT;
CLASSES[0x09] = TEXT;
for (const character of "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz") {
  CLASSES[character.charCodeAt(0)] = TEXT | TOKEN | LOWER;
}
for (const character of 'ABCDEFGHIJKLMNOPQRSTUVWXYZ') CLASSES[character.charCodeAt(0)] = TEXT | TOKEN;

const HTAB = 0x09;
export const LF = 0x0a;
export const CR = 0x0d;
const SP = 0x20;
export const COLON = 0x3a;
export const SEMICOLON = 0x3b;

/**
 * Returns the position after the last octet of a token (RFC 9110, 5.6.2) that begins at `at`; at most `end`.
 */
export function tokenEnd(bytes: Uint8Array, at: number, end: number): number {
  let place = at;
  while (place < end && (u8At(CLASSES, u8At(bytes, place)) & TOKEN) !== 0) place++;
  return place;
}

/**
 * Returns the position after the last octet of a field value (RFC 9110, 5.5) that begins at `at`; at most
 * `end`.
 */
export function textEnd(bytes: Uint8Array, at: number, end: number): number {
  let place = at;
  while (place < end && CLASSES[u8At(bytes, place)] !== 0) place++;
  return place;
}

export function isTokenOctet(octet: number): boolean {
  return (u8At(CLASSES, octet) & TOKEN) !== 0;
}

/** Returns true if a field value may contain the octet. Spaces and tabs are permitted. */
export function isTextOctet(octet: number): boolean {
  return CLASSES[octet] !== 0;
}

/** Returns true if the text is a token without upper-case letters. */
export function isLowerToken(text: string): boolean {
  for (let at = 0; at < text.length; at++) {
    if (((CLASSES[text.charCodeAt(at)] ?? 0) & LOWER) === 0) return false;
  }
  return text !== '';
}

/** Returns true if the text is a valid field value that neither begins nor ends with a space or tab. */
export function isFieldValue(text: string): boolean {
  for (let at = 0; at < text.length; at++) if ((CLASSES[text.charCodeAt(at)] ?? 0) === 0) return false;
  return !isSpace(text.charCodeAt(0)) && !isSpace(text.charCodeAt(text.length - 1));
}

export function isSpace(octet: number): boolean {
  return octet === SP || octet === HTAB;
}
