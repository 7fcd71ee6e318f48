import type { HeaderMatchConfig, HttpMatchConfig, HttpRequestMatchConfig } from '#contracts/policy/policy-document.js';
import type { Intact } from '#policy/document/shape.js';
import { decodedPaths, writtenPath } from '#policy/evaluate/connection/http-path.js';
import { escapeStep } from '#policy/model/pointer.js';
import { REQUEST_HOST } from './hostname-validation.js';
import { validateExact, validateNameObject, validateRegex } from './name-validation.js';
import type { Validation } from './validation-context.js';

type Lists = Readonly<Record<string, readonly (string | undefined)[] | undefined>>;
type Expressions = Readonly<Record<string, string | undefined>>;

export function validateHttp(http: Intact<HttpMatchConfig>, at: string, validation: Validation): void {
  const { problems, damaged } = validation;
  if (http.request === undefined && http.response === undefined && !damaged.has(http)) {
    problems.add(at, 'http_empty', 'http needs request or response.');
  }
  if (http.request !== undefined) validateRequest(http.request, `${at}/request`, validation);
  if (http.response !== undefined) {
    if (http.response.headers !== undefined) {
      validateHeaders(http.response.headers, `${at}/response/headers`, validation);
    } else if (!damaged.has(http.response)) {
      problems.add(`${at}/response`, 'empty_matcher', 'A response matcher needs headers.');
    }
  }
}

function validateRequest(request: Intact<HttpRequestMatchConfig>, at: string, validation: Validation): void {
  const { problems } = validation;
  const { host, methods = [], path, query, headers } = request;
  if (isEmpty(request, validation)) {
    problems.add(at, 'empty_matcher', 'A request matcher needs host, methods, path, query or headers.');
  }
  if (host !== undefined) validateNameObject(host, `${at}/host`, REQUEST_HOST, validation);
  for (const [index, method] of methods.entries()) {
    if (method === undefined || TOKEN.test(method)) continue;
    problems.add(`${at}/methods/${index}`, 'invalid_method', 'A method is a token such as "GET".');
  }
  if (path !== undefined) validatePath(path, `${at}/path`, validation);
  if (query !== undefined) validateQuery(query, `${at}/query`, validation);
  if (headers !== undefined) validateHeaders(headers, `${at}/headers`, validation);
}

function validatePath(
  path: Intact<NonNullable<HttpRequestMatchConfig['path']>>,
  at: string,
  validation: Validation,
): void {
  if (isEmpty(path, validation)) {
    validation.problems.add(at, 'empty_matcher', 'A path matcher needs exact, prefix or regex.');
  }
  validatePaths(path.exact ?? [], `${at}/exact`, validation);
  validatePaths(path.prefix ?? [], `${at}/prefix`, validation);
  if (path.regex !== undefined) validateRegex(path.regex, `${at}/regex`, validation);
}

function validatePaths(texts: readonly (string | undefined)[], at: string, validation: Validation): void {
  validateExact(texts, at, validation);
  if (validation.context.isStored === true) return;
  for (const [index, text] of texts.entries()) {
    const fault = text === undefined || text === '' ? null : pathFault(text);
    if (fault !== null) validation.problems.add(`${at}/${index}`, 'invalid_path', fault);
  }
}

/** Returns why no request path matches a configured path, and the text to write instead. */
function pathFault(text: string): string | null {
  if (!text.startsWith('/') && text !== '*') return `A path begins with "/": write ${JSON.stringify(`/${text}`)}.`;
  if (text.includes('?')) return 'A path has no query: use request.query, or write "%3F" for the character "?".';
  if (text.includes('#')) return 'A request has no fragment: write "%23" for the character "#".';
  if (text.includes('\\')) return 'A request with "\\" in its path is refused: write "/", or "%5C" for the character.';
  if (decodedPaths(writtenPath(text)) !== null) return null;
  return 'An allow rule matches no path with an incomplete escape, "%00", or escapes that are nested more than three times: write "%25" for the character "%".';
}

function validateQuery(
  query: Intact<NonNullable<HttpRequestMatchConfig['query']>>,
  at: string,
  validation: Validation,
): void {
  const { keys_present: present = [], key_values_exact: exact, key_values_regex: regex } = query;
  if (isEmpty(query, validation)) {
    const message = 'A query matcher needs keys_present, key_values_exact or key_values_regex.';
    validation.problems.add(at, 'empty_matcher', message);
  }
  validateExact(present, `${at}/keys_present`, validation);
  validateLists(exact, `${at}/key_values_exact`, validation, queryKey);
  validateExpressions(regex, `${at}/key_values_regex`, validation, queryKey);
}

function validateHeaders(headers: Intact<HeaderMatchConfig>, at: string, validation: Validation): void {
  const { require_present: required = [], deny_present: denied = [], exact, regex } = headers;
  if (isEmpty(headers, validation)) {
    const message = 'A header matcher needs require_present, deny_present, exact or regex.';
    validation.problems.add(at, 'empty_matcher', message);
  }
  validateHeaderNames(required, `${at}/require_present`, validation);
  validateHeaderNames(denied, `${at}/deny_present`, validation);
  validateLists(exact, `${at}/exact`, validation, headerKeys());
  validateExpressions(regex, `${at}/regex`, validation, headerKeys());
}

function validateHeaderNames(names: readonly (string | undefined)[], at: string, { problems }: Validation): void {
  for (const [index, name] of names.entries()) {
    if (name === undefined || TOKEN.test(name)) continue;
    problems.add(`${at}/${index}`, 'invalid_header_name', HEADER_NAME);
  }
}

/** Reports the problems of a key in a map of matchers. `at` is the JSON pointer of the key. */
type KeyCheck = (key: string, at: string, validation: Validation) => void;

const queryKey: KeyCheck = (key, at, { problems }) => {
  if (key === '') problems.add(at, 'invalid_key', 'A query key is not empty.');
};

function headerKeys(): KeyCheck {
  const seen = new Set<string>();
  return (key, at, { problems }) => {
    const lower = key.toLowerCase();
    if (!TOKEN.test(key)) problems.add(at, 'invalid_header_name', HEADER_NAME);
    else if (seen.has(lower)) problems.add(at, 'duplicate_header', 'This header is repeated here in different case.');
    seen.add(lower);
  };
}

function validateLists(lists: Lists | undefined, at: string, validation: Validation, check: KeyCheck): void {
  for (const [key, values] of entries(lists, at, validation)) {
    const pointer = `${at}/${escapeStep(key)}`;
    check(key, pointer, validation);
    if (values?.length === 0)
      validation.problems.add(pointer, 'empty_matcher', 'An empty list of values matches nothing.');
  }
}

function validateExpressions(map: Expressions | undefined, at: string, validation: Validation, check: KeyCheck): void {
  for (const [key, source] of entries(map, at, validation)) {
    const pointer = `${at}/${escapeStep(key)}`;
    check(key, pointer, validation);
    if (source !== undefined) validateRegex(source, pointer, validation);
  }
}

/**
 * Returns the members of a map without the key `__proto__`, and reports this key as a problem. The Zod schema
 * ignores `__proto__`, so its value was not checked.
 */
function entries<T>(map: Readonly<Record<string, T>> | undefined, at: string, { problems }: Validation): [string, T][] {
  const all = Object.entries(map ?? {});
  const safe = all.filter(([key]) => key !== '__proto__');
  if (safe.length < all.length) problems.add(`${at}/__proto__`, 'invalid_key', 'A key cannot be "__proto__".');
  return safe;
}

/**
 * Returns whether a matcher has only empty members. Returns false if `keepIntact` removed a faulty member.
 */
function isEmpty(matcher: object, { damaged }: Validation): boolean {
  if (damaged.has(matcher)) return false;
  return Object.entries(matcher as Record<string, unknown>).every(([field, value]) => {
    if (Array.isArray(value)) return value.length === 0;
    const isMap = MAPS.has(field) && typeof value === 'object' && value !== null && !damaged.has(value);
    return value === undefined || (isMap && Object.keys(value).length === 0);
  });
}

const MAPS: ReadonlySet<string> = new Set(['exact', 'regex', 'key_values_exact', 'key_values_regex']);
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const HEADER_NAME = 'A header name is a token such as "content-type".';
