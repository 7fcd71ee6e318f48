import { itemAt } from '#arrays/read.js';
import type { HttpRequestMatchConfig } from '#contracts/policy/policy-document.js';
import { anyOf, exactTest, regexTest, type TextTest } from './http-values.js';

/**
 * The forms in which a path is compared (D24): as the client sent it, normalised by RFC 3986, and decoded.
 * Servers differ in the form that they use. An unreadable path has no reliable form.
 */
export type PathView = 'raw' | 'normalised' | 'decoded' | 'unreadable';

/** The maximum number of decoding rounds that a path may need until nothing changes. */
const MAX_ROUNDS = 3;

/**
 * A compiled path matcher. A deny rule matches if one form of the path matches, an allow rule only if all
 * forms match. A deny rule matches an unreadable path, and an allow rule does not.
 */
export class PathMatcher {
  readonly #raw: TextTest;
  readonly #normalised: TextTest;
  /**
   * One test for each round of decoding, at least one. In further rounds, the configured text no longer
   * changes, so the last test is used.
   */
  readonly #decoded: readonly TextTest[];
  readonly #rounds: number;

  constructor({ exact = [], prefix = [], regex }: NonNullable<HttpRequestMatchConfig['path']>) {
    const search = regex === undefined ? [] : [regexTest(regex)];
    const searchOctets = search.map(
      (test): TextTest =>
        (octets, unresolved) =>
          test(utf8Of(octets), unresolved),
    );
    const test = (form: (text: string) => string, searches: readonly TextTest[]): TextTest =>
      anyOf([
        ...(exact.length > 0 ? [exactTest(exact.map(form))] : []),
        ...prefix.map(form).map(
          (start): TextTest =>
            (text) =>
              text.startsWith(start),
        ),
        ...searches,
      ]);
    this.#raw = test(writtenPath, search);
    this.#normalised = test((text) => normalPath(writtenPath(text)), search);
    this.#rounds = [...exact, ...prefix].reduce((most, text) => Math.max(most, roundsOf(writtenPath(text)).length), 0);
    this.#decoded = Array.from({ length: Math.max(1, this.#rounds) }, (_, round) =>
      test((text) => {
        const texts = [writtenPath(text), ...roundsOf(writtenPath(text))];
        return resolved(itemAt(texts, Math.min(round + 1, texts.length - 1)));
      }, searchOctets),
    );
  }

  matches(path: string, isDeny: boolean): boolean {
    return (this.decidingView(path, isDeny) === null) !== isDeny;
  }

  /**
   * Returns the first form for which an allow rule does not match, or for which a deny rule matches. Returns
   * null if there is none: an allow rule matches, and a deny rule does not.
   */
  decidingView(path: string, isDeny: boolean): PathView | null {
    const decoded = decodedPaths(path);
    if (decoded === null) return 'unreadable';
    if (this.#raw(path, isDeny) === isDeny) return 'raw';
    if (this.#normalised(normalPath(path), isDeny) === isDeny) return 'normalised';
    const rounds = Math.max(decoded.length, this.#rounds);
    for (let round = 0; round < rounds; round++) {
      const test = itemAt(this.#decoded, Math.min(round, this.#decoded.length - 1));
      if (test(formAfter(round, decoded, path), isDeny) === isDeny) return 'decoded';
    }
    return null;
  }
}

/**
 * Normalises a path as most servers do (RFC 3986, 6.2.2, and common practice). Decodes escapes of visible
 * characters except `/`, `\`, `%`, `?` and `#`, and writes other escapes in upper case. Replaces `\` by `/`.
 * Removes path parameters, empty segments and dot segments.
 */
export function normalPath(path: string): string {
  return resolved(path, (name) => (name.includes('%') ? name.replace(ESCAPES, normalEscape) : name));
}

/**
 * Decodes all escapes of a path, also those of `/`, in rounds until nothing changes. Resolves the path after
 * each round like `normalPath`. Returns the forms, whose characters are octets; none if the path has no
 * escapes. Returns null for an unreadable path: with an incomplete escape, an escape of NUL, a character that
 * is invalid in a path, or more than three rounds.
 */
export function decodedPaths(path: string): readonly string[] | null {
  if (UNREADABLE.test(path)) return null;
  const texts = roundsOf(path);
  if (texts.length > MAX_ROUNDS || texts.some((text) => text.includes('\0'))) return null;
  return texts.map((text) => resolved(text));
}

/** Percent-encodes the characters of a configured path that no HTTP request contains unescaped. */
export function writtenPath(path: string): string {
  return path.replace(/[^!-~]+/g, escapesOf);
}

const UNREADABLE = /%(?![0-9a-f]{2})|[^!-~]|#/i;
const ESCAPES = /%[0-9a-f]{2}/gi;

/** Decodes a text in rounds until nothing changes, and stops after `MAX_ROUNDS` + 1 rounds. */
function roundsOf(path: string): readonly string[] {
  const texts: string[] = [];
  let text = path;
  while (text.includes('%') && texts.length <= MAX_ROUNDS) {
    const decoded = text.replace(ESCAPES, octetOf);
    if (decoded === text) break;
    texts.push(decoded);
    text = decoded;
  }
  return texts;
}

/**
 * Returns the form of a path after a round of decoding. If the path needs fewer rounds, returns its last
 * form.
 */
function formAfter(round: number, decoded: readonly string[], path: string): string {
  return decoded[Math.min(round, decoded.length - 1)] ?? resolved(path);
}

/** Replaces `\` by `/`, and removes path parameters, empty segments and dot segments. */
function resolved(path: string, nameOf: (segment: string) => string = (segment) => segment): string {
  if (!path.startsWith('/') || !/[%;\\]|\/[/.]/.test(path)) return path;
  const kept: string[] = [];
  let isFolder = false;
  for (const segment of path.replaceAll('\\', '/').split('/')) {
    const name = nameOf(segment.split(';', 1)[0] ?? '');
    isFolder = name === '' || name === '.' || name === '..';
    if (name === '..') kept.pop();
    else if (!isFolder) kept.push(name);
  }
  const joined = `/${kept.join('/')}`;
  return isFolder && kept.length > 0 ? `${joined}/` : joined;
}

function octetOf(escaped: string): string {
  return String.fromCharCode(Number.parseInt(escaped.slice(1), 16));
}

function normalEscape(escaped: string): string {
  const character = octetOf(escaped);
  return /[!-~]/.test(character) && !/[/\\%?#]/.test(character) ? character : escaped.toUpperCase();
}

/** Decodes octets as UTF-8 for a regular expression. Invalid octets become U+FFFD. */
function utf8Of(octets: string): string {
  if (!/[^\0-\x7f]/.test(octets)) return octets;
  return new TextDecoder().decode(Uint8Array.from(octets, (octet) => octet.charCodeAt(0)));
}

function escapesOf(text: string): string {
  const octets = [...new TextEncoder().encode(text)];
  return octets.map((octet) => `%${octet.toString(16).toUpperCase().padStart(2, '0')}`).join('');
}
