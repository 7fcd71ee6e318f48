import { RE2JS, RE2JSException, RE2JSSyntaxException } from 're2js';

export const MAX_REGEX_BYTES = 1024;

/** A compiled RE2 expression, searched unanchored (D13). */
export type Regex = { test(text: string): boolean };

export type CompiledRegex =
  | { readonly ok: true; readonly regex: Regex }
  | { readonly ok: false; readonly code: 'invalid_regex' | 'regex_too_long' | 'empty_matcher'; readonly fault: string };

export type RegexOptions = { readonly caseInsensitive?: boolean };

/** The one door to the regular expression engine. Compiled expressions are kept for the next caller. */
export function compileRegex(source: string, { caseInsensitive = false }: RegexOptions = {}): CompiledRegex {
  const cache = caseInsensitive ? insensitive : sensitive;
  const known = cache.get(source);
  if (known !== undefined) return known;
  const compiled = compile(source, caseInsensitive);
  if (cache.size >= CACHE_SIZE) cache.clear();
  cache.set(source, compiled);
  return compiled;
}

/** Whether both ends of the expression are tied to the ends of the text. Groups and alternatives are not looked into. */
export function isAnchored(source: string): boolean {
  const body = source.replace(/^\(\?[a-zA-Z]+\)/, '');
  if (hasTopLevelAlternative(body)) return false;
  const start = body.startsWith('^') || body.startsWith('\\A');
  const end = (body.endsWith('$') && !endsEscaped(body)) || (body.endsWith('\\z') && !endsEscaped(body.slice(0, -1)));
  return start && end;
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
    return { ok: true, regex };
  } catch (error) {
    if (error instanceof RE2JSSyntaxException) {
      return { ok: false, code: 'invalid_regex', fault: `${error.getDescription()}${place(source, error.getPattern())}` };
    }
    if (error instanceof RE2JSException) return { ok: false, code: 'invalid_regex', fault: error.message };
    throw error;
  }
}

function place(source: string, fragment: string | null): string {
  const at = fragment === null ? source.length : source.indexOf(fragment);
  if (at === -1) return '';
  const position = ` at character ${at + 1}`;
  return fragment === null || fragment === source ? position : `${position}: ${fragment}`;
}

/** Whether the last character is taken literally by an odd number of backslashes before it. */
function endsEscaped(source: string): boolean {
  let backslashes = 0;
  for (let at = source.length - 2; at >= 0 && source[at] === '\\'; at--) backslashes++;
  return backslashes % 2 === 1;
}

function hasTopLevelAlternative(source: string): boolean {
  let depth = 0;
  let inClass = false;
  for (let at = 0; at < source.length; at++) {
    const character = source[at];
    if (character === '\\') at++;
    else if (inClass) inClass = character !== ']';
    else if (character === '[') inClass = true;
    else if (character === '(') depth++;
    else if (character === ')') depth--;
    else if (character === '|' && depth === 0) return true;
  }
  return false;
}
