import { RE2JS, RE2JSException, RE2JSSyntaxException, RE2Set } from 're2js';

export const MAX_REGEX_BYTES = 1024;

/** A compiled RE2 expression. `test` searches the whole text, so a match may begin at any position (D13). */
type Regex = { test(text: string): boolean };

export type CompiledRegex =
  /**
   * `instructions` is the number of instructions of the compiled expression. The time of a search grows with
   * this number.
   */
  | { readonly ok: true; readonly regex: Regex; readonly instructions: number }
  | { readonly ok: false; readonly code: 'invalid_regex' | 'regex_too_long' | 'empty_matcher'; readonly fault: string };

export type RegexOptions = { readonly caseInsensitive?: boolean };

/**
 * Compiles a regular expression, or returns the cached result. All code that uses the RE2 engine must call
 * this function or `RegexSet`.
 */
export function compileRegex(source: string, { caseInsensitive = false }: RegexOptions = {}): CompiledRegex {
  const cache = caseInsensitive ? insensitive : sensitive;
  const known = cache.get(source);
  if (known !== undefined) return known;
  const compiled = compile(source, caseInsensitive);
  if (cache.size >= CACHE_SIZE) cache.clear();
  cache.set(source, compiled);
  return compiled;
}

/** A set of valid regular expressions that is matched against a text in one pass. */
export class RegexSet {
  readonly #sets: readonly RE2Set[];

  constructor(sources: readonly string[], { caseInsensitive = false }: RegexOptions = {}) {
    const sets: RE2Set[] = [];
    for (let from = 0; from < sources.length; from += IN_ONE_SET) {
      const set = new RE2Set(RE2Set.UNANCHORED, caseInsensitive ? RE2JS.CASE_INSENSITIVE : 0);
      for (const source of sources.slice(from, from + IN_ONE_SET)) set.add(source);
      set.compile();
      sets.push(set);
    }
    this.#sets = sets;
  }

  /** Returns the indexes in `sources` of the expressions that match the text. */
  matching(text: string): readonly number[] {
    return this.#sets.flatMap((set, index) => set.match(text).map((place) => place + index * IN_ONE_SET));
  }
}

/**
 * The maximum number of regular expressions in one automaton. A search with an automaton of 1,000 expressions
 * can take milliseconds.
 */
const IN_ONE_SET = 64;

/**
 * `start`: every alternative of the regular expression is anchored to the start of the text. `end`: every
 * alternative is anchored to the end.
 */
export type Anchors = { readonly start: boolean; readonly end: boolean };

export function anchorsOf(source: string): Anchors {
  const parts = alternatives(source.replace(/^\(\?[a-zA-Z]+\)/, '')).map(anchorsOfPart);
  return { start: parts.every(({ start }) => start), end: parts.every(({ end }) => end) };
}

const CACHE_SIZE = 4096;
const sensitive = new Map<string, CompiledRegex>();
const insensitive = new Map<string, CompiledRegex>();

function compile(source: string, caseInsensitive: boolean): CompiledRegex {
  if (source === '') return { ok: false, code: 'empty_matcher', fault: 'an empty expression matches everything' };
  if (source.length > MAX_REGEX_BYTES || new TextEncoder().encode(source).length > MAX_REGEX_BYTES) {
    return { ok: false, code: 'regex_too_long', fault: `longer than ${MAX_REGEX_BYTES} bytes` };
  }
  try {
    const regex = RE2JS.compile(source, caseInsensitive ? RE2JS.CASE_INSENSITIVE : 0);
    return { ok: true, regex, instructions: regex.programSize() };
  } catch (error) {
    if (error instanceof RE2JSSyntaxException) {
      const description = error.getDescription();
      return {
        ok: false,
        code: 'invalid_regex',
        fault: `${description}${place(source, description, error.getPattern())}`,
      };
    }
    if (error instanceof RE2JSException) return { ok: false, code: 'invalid_regex', fault: error.message };
    throw error;
  }
}

/**
 * Describes the position of a syntax error. The RE2 engine returns only the faulty fragment; for an unmatched
 * parenthesis, it returns the whole expression.
 */
function place(source: string, description: string, fragment: string | null): string {
  if (fragment === null || fragment === '') return ` at character ${source.length}`;
  if (description.endsWith(')')) return ` at character ${unmatchedParenthesis(source) + 1}`;
  const at = source.indexOf(fragment);
  return at === -1 ? '' : ` at character ${at + 1}: ${fragment}`;
}

function unmatchedParenthesis(source: string): number {
  const open: number[] = [];
  let closed = -1;
  walkBrackets(source, (character, at) => {
    if (character === '(') open.push(at);
    if (character === ')' && open.pop() === undefined && closed === -1) closed = at;
  });
  return closed === -1 ? (open.at(-1) ?? 0) : closed;
}

function anchorsOfPart(part: string): Anchors {
  const group = /^\((\?:|\?P?<[A-Za-z0-9_]+>)?/.exec(part);
  if (group !== null && groupEnd(part) === part.length - 1) return anchorsOf(part.slice(group[0].length, -1));
  return {
    start: part.startsWith('^') || part.startsWith('\\A'),
    end: (part.endsWith('$') && !endsEscaped(part)) || (part.endsWith('\\z') && !endsEscaped(part.slice(0, -1))),
  };
}

/**
 * Whether an odd number of backslashes precedes the last character, so that a final `$` is a literal
 * character and not an anchor.
 */
function endsEscaped(source: string): boolean {
  let backslashes = 0;
  for (let at = source.length - 2; at >= 0 && source[at] === '\\'; at--) backslashes++;
  return backslashes % 2 === 1;
}

function alternatives(source: string): string[] {
  const found: string[] = [];
  let start = 0;
  walkBrackets(source, (character, at, depth) => {
    if (character !== '|' || depth !== 0) return;
    found.push(source.slice(start, at));
    start = at + 1;
  });
  found.push(source.slice(start));
  return found;
}

/**
 * Returns the index of the parenthesis that closes the group at the start of an expression. Returns -1 if no
 * parenthesis closes the group.
 */
function groupEnd(part: string): number {
  let end = -1;
  walkBrackets(part, (character, at, depth) => {
    if (end === -1 && character === ')' && depth === 0) end = at;
  });
  return end;
}

/**
 * Calls `visit` for every character outside character classes and escapes, with the number of groups around
 * the character.
 */
function walkBrackets(source: string, visit: (character: string, at: number, depth: number) => void): void {
  let depth = 0;
  let classStart = -1;
  for (let at = 0; at < source.length; at++) {
    const character = source.charAt(at);
    if (character === '\\') {
      at++;
    } else if (classStart !== -1) {
      const first = at === classStart + 1 || (at === classStart + 2 && source[classStart + 1] === '^');
      if (character === ']' && !first) classStart = -1;
    } else if (character === '[') {
      classStart = at;
    } else {
      if (character === ')') depth--;
      visit(character, at, depth);
      if (character === '(') depth++;
    }
  }
}
