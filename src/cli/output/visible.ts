/** Control characters of C0 and C1, separators of lines, and marks that change the direction of text. */
const HIDDEN = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;
/** Like `HIDDEN`, but permits line feeds and the colour codes of `styleOf`. */
const HIDDEN_IN_LINES = new RegExp(`\\u001b\\[(?:[12]|22|3[1-59])m|(?!\n)${HIDDEN.source}`, 'gu');
const NAMED: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

const escaped = (character: string): string =>
  NAMED[character] ?? `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`;

/** Escapes every character that would control a terminal, in the form of JSON. */
export const visible = (text: string): string => text.replace(HIDDEN, escaped);

/** Like `visible`, for a text with several lines and with colours of this command. */
export const visibleLines = (text: string): string =>
  text.replace(HIDDEN_IN_LINES, (found) => (found.length > 1 ? found : escaped(found)));

/**
 * Returns a copy of a JSON value in which control characters of texts and keys are escaped. Returns any other
 * value unchanged.
 */
export function visibleIn<T>(value: T): T {
  if (typeof value === 'string') return visible(value) as T;
  if (Array.isArray(value)) return value.map(visibleIn) as T;
  if (value === null || typeof value !== 'object' || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [visible(key), visibleIn(member)])) as T;
}
