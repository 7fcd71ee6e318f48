/**
 * Normalises a path as most servers do (RFC 3986, 6.2.2, and common practice). Decodes escapes of visible
 * characters except `/`, `\`, `%`, `?` and `#`, and writes other escapes in upper case. Replaces `\` by `/`.
 * Removes path parameters, empty segments and dot segments.
 */
export function normalPath(path: string): string {
  if (!path.startsWith('/') || !/[%;\\]|\/[/.]/.test(path)) return path;
  const kept: string[] = [];
  const segments = path.replaceAll('\\', '/').split('/');
  let isFolder = false;
  for (const segment of segments) {
    const [name = ''] = segment.split(';', 1);
    const decoded = name.includes('%') ? name.replace(/%[0-9a-f]{2}/gi, decodedEscape) : name;
    isFolder = decoded === '' || decoded === '.' || decoded === '..';
    if (decoded === '..') kept.pop();
    else if (!isFolder) kept.push(decoded);
  }
  const joined = `/${kept.join('/')}`;
  return isFolder && kept.length > 0 ? `${joined}/` : joined;
}

/**
 * Whether different servers may interpret a path in different ways. No normalised form of such a path is
 * reliable.
 */
export function isAmbiguousPath(path: string): boolean {
  return AMBIGUOUS.test(path);
}

/** Percent-encodes the characters of a configured path that no HTTP request contains unescaped. */
export function writtenPath(path: string): string {
  return path.replace(/[^!-~]+/g, escapesOf);
}

/**
 * Matches paths that different servers interpret in different ways:
 * - escapes of `/`, `\` and NUL, also double escapes; double escapes of dots and percent signs;
 * - dot segments before an escaped `;`;
 * - an incomplete escape, or a character that is invalid in a path.
 */
const AMBIGUOUS = /%(?:2f|5c|00|25(?:2f|5c|00|2e|25)|(?![0-9a-f]{2}))|\/(?:\.|%2e){1,2}%3b|[^!-~]|#/i;

function decodedEscape(text: string): string {
  const character = String.fromCharCode(Number.parseInt(text.slice(1), 16));
  return /[!-~]/.test(character) && !/[/\\%?#]/.test(character) ? character : text.toUpperCase();
}

function escapesOf(text: string): string {
  const octets = [...new TextEncoder().encode(text)];
  return octets.map((octet) => `%${octet.toString(16).toUpperCase().padStart(2, '0')}`).join('');
}
