import { compileRegex } from '#policy/model/names/regex.js';

/**
 * The maximum length of a text, in characters, in which a regular expression is searched. For a longer text,
 * the matcher is undecidable (D19a).
 */
const MAX_SEARCHED = 8192;

/**
 * A compiled matcher of a text. Returns whether the text matches, or `unresolved` if the match is
 * undecidable.
 */
export type TextTest = (text: string, unresolved: boolean) => boolean;

export function regexTest(source: string, caseInsensitive = false): TextTest {
  const compiled = compileRegex(source, { caseInsensitive });
  if (!compiled.ok) return (_, unresolved) => unresolved;
  const { regex } = compiled;
  return (text, unresolved) => (text.length > MAX_SEARCHED ? unresolved : regex.test(text));
}

export function exactTest(values: readonly string[]): TextTest {
  const [first] = values;
  if (values.length === 1) return (text) => text === first;
  const set = new Set(values);
  return (text) => set.has(text);
}

export function anyOf(tests: readonly TextTest[]): TextTest {
  const [first] = tests;
  if (tests.length === 1 && first !== undefined) return first;
  return (text, unresolved) => tests.some((test) => test(text, unresolved));
}

type NamedTests = readonly (readonly [key: string, test: TextTest])[];

export type Lists = Readonly<Record<string, readonly string[]>>;
export type Expressions = Readonly<Record<string, string>>;

export function exactTests(lists: Lists = {}): NamedTests {
  return Object.entries(lists).map(([key, values]) => [key, exactTest(values)] as const);
}

export function regexTests(expressions: Expressions = {}): NamedTests {
  return Object.entries(expressions).map(([key, source]) => [key, regexTest(source)] as const);
}
