/**
 * A path as most servers come to understand it (RFC 3986, 6.2.2, and what servers do beyond it): escapes of visible characters decoded but
 * for those of `/`, `\`, `%`, `?` and `#`, the other escapes in upper case, `\` as `/`, parameters of segments left out, empty and dot
 * segments removed.
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

/** Whether servers differ on what a path means, so that no view of it can be trusted. */
export function isAmbiguousPath(path: string): boolean {
  return AMBIGUOUS.test(path);
}

/** A path as an operator writes it, with what no request carries unescaped in escapes. */
export function writtenPath(path: string): string {
  return path.replace(/[^!-~]+/g, escapesOf);
}

/**
 * Escapes of `/`, `\` and NUL, also when they are escaped twice, and dots that are; dots before an escaped `;`; what is no escape; what stands
 * in no path.
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
