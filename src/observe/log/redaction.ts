/**
 * Patterns of secrets in free text: a private key in PEM (also inside a JSON string), a JSON web token, and
 * the credentials of an HTTP request. The patterns are only a second protection: code that writes log lines
 * or dump files must omit secrets itself.
 */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----[\s\S]*?(-----END \1-----|$)/g, '[private key]'],
  [/\beyJ[\w-]{4,}\.[\w-]{4,}(\.[\w-]+){1,3}/g, '[token]'],
  [/\b(Bearer|bearer|Basic)( +|%20)[\w.~+/=-]{8,}/g, '$1 [credentials]'],
];
const MARKS = ['PRIVATE KEY-----', 'eyJ', 'earer', 'Basic'].map((mark) => Buffer.from(mark));

export function redacted(text: string): string {
  return SECRETS.reduce((rest, [secret, name]) => rest.replace(secret, name), text);
}

/** Replaces secrets in UTF-8 bytes. Returns the same buffer if the bytes contain no secret. */
export function redactedBytes(bytes: Buffer): Buffer {
  if (!MARKS.some((mark) => bytes.includes(mark))) return bytes;
  const text = bytes.toString('utf8');
  const kept = redacted(text);
  return kept === text ? bytes : Buffer.from(kept);
}
