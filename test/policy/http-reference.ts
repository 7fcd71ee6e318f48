import { domainToASCII } from 'node:url';
import type { HeaderMatchConfig, HttpRequestMatchConfig } from '#contracts/policy/policy-document.js';
import type { Action } from '#contracts/policy/policy-model.js';
import type { Headers, RequestFacts } from '#contracts/service-plane/http-facts.js';

/**
 * The answer of one matcher in `referenceMatch`, the slow reference implementation of D24. `unknown` means
 * that the matcher cannot be decided for this request. A request whose answer is `unknown` matches a deny
 * rule, and does not match an allow rule (D19a).
 */
type Answer = 'yes' | 'no' | 'unknown';

export function referenceMatch(
  config: HttpRequestMatchConfig | undefined,
  facts: RequestFacts,
  action: Action,
): 'yes' | 'no' {
  const answer = config === undefined ? 'yes' : all(requestAnswers(config, facts, action));
  if (answer === 'unknown') return action === 'deny' ? 'yes' : 'no';
  return answer;
}

function* requestAnswers(config: HttpRequestMatchConfig, facts: RequestFacts, action: Action): Generator<Answer> {
  const { methods, host, path, query, headers } = config;
  if (methods !== undefined && methods.length > 0) yield is(methods.some((method) => method === facts.method));
  if (host !== undefined) {
    const { exact = [], regex } = host;
    const names = exact
      .map((one) => (one.startsWith('[') ? one : domainToASCII(one)))
      .some((one) => (one.startsWith('*.') ? facts.host.endsWith(one.slice(1)) : one === facts.host));
    yield is(names || (regex !== undefined && new RegExp(regex, 'i').test(facts.host)));
  }
  if (path !== undefined) yield pathAnswer(path, facts.path, action);
  if (query !== undefined) {
    const pairs = pairsOf(facts.query ?? '');
    for (const wanted of query.keys_present ?? []) yield is(pairs.some(([key]) => key === wanted));
    const valuesOf = (wanted: string): string[] => pairs.filter(([key]) => key === wanted).map(([, value]) => value);
    for (const [key, list] of Object.entries(query.key_values_exact ?? {})) {
      yield valuesAnswer(valuesOf(key), (value) => list.includes(value), action);
    }
    for (const [key, source] of Object.entries(query.key_values_regex ?? {})) {
      yield valuesAnswer(valuesOf(key), (value) => new RegExp(source).test(value), action);
    }
  }
  if (headers !== undefined) yield headersAnswer(headers, facts.headers, action);
}

function pathAnswer(path: NonNullable<HttpRequestMatchConfig['path']>, sent: string, action: Action): Answer {
  if (/#|[^\x21-\x7e]/.test(sent) || /%(?![0-9a-f][0-9a-f])/i.test(sent)) return 'unknown';
  if (decodedOf(sent, 4) !== decodedOf(sent, 3) || decodedOf(sent, 3).includes('\0')) return 'unknown';
  const { regex } = path;
  const [exact = [], prefix = []] = [path.exact, path.prefix].map((list) => list?.map(escapedPath));
  const asSent =
    exact.includes(sent) ||
    prefix.some((start) => sent.startsWith(start)) ||
    (regex !== undefined && new RegExp(regex).test(sent));
  const understood = plainPath(sent);
  const asUnderstood =
    exact.some((one) => plainPath(one) === understood) ||
    prefix.some((start) => understood.startsWith(plainPath(start))) ||
    (regex !== undefined && new RegExp(regex).test(understood));
  const asDecoded = [1, 2, 3].map((rounds) => {
    const [decoded, inText] = [
      plainDecoded(sent, rounds),
      Buffer.from(plainDecoded(sent, rounds), 'latin1').toString(),
    ];
    return (
      exact.some((one) => plainDecoded(one, rounds) === decoded) ||
      prefix.some((start) => decoded.startsWith(plainDecoded(start, rounds))) ||
      (regex !== undefined && new RegExp(regex).test(inText))
    );
  });
  const forms = [asSent, asUnderstood, ...asDecoded];
  return is(action === 'deny' ? forms.includes(true) : !forms.includes(false));
}

/** Decodes the percent-escapes of a path `rounds` times. */
function decodedOf(path: string, rounds: number): string {
  if (rounds === 0) return path;
  const decoded = path.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return decodedOf(decoded, rounds - 1);
}

/** Decodes the escapes of a path `rounds` times, and normalises the path without decoding it again. */
function plainDecoded(path: string, rounds: number): string {
  return plainPath(decodedOf(path, rounds), false);
}

/**
 * Percent-encodes only the blanks and the non-ASCII characters of a path. `encodeURI` of the whole path would
 * also encode each `%` a second time.
 */
function escapedPath(path: string): string {
  return path.replace(/[ \u0080-\uffff]+/g, encodeURI);
}

/**
 * Reference for `normalPath`, which normalises a path in one pass. This function applies each rewriting step
 * to the whole path before the next step.
 */
export function plainPath(path: string, decodes = true): string {
  if (!path.startsWith('/')) return path;
  let text = path.replaceAll('\\', '/').replace(/;[^/]*/g, '');
  for (let octet = 0x21; decodes && octet <= 0x7e; octet++) {
    const character = String.fromCharCode(octet);
    const escaped = new RegExp(`%${octet.toString(16)}`, 'gi');
    if (!'%/\\?#'.includes(character)) text = text.replace(escaped, () => character);
  }
  if (decodes) text = text.replace(/%[0-9a-f]{2}/gi, (escaped) => escaped.toUpperCase());
  while (text.includes('//')) text = text.replace('//', '/');
  while (/\/\.(\/|$)/.test(text)) text = text.replace(/\/\.(\/|$)/, '/');
  while (/\/\.\.(\/|$)/.test(text)) text = text.replace(/(^|\/[^/]+)\/\.\.(\/|$)/, '/');
  return text;
}

function pairsOf(query: string): readonly (readonly [string, string])[] {
  return query
    .split('&')
    .filter((part) => part !== '')
    .map((part) => {
      const equals = part.indexOf('=');
      return equals === -1 ? [formText(part), ''] : [formText(part.slice(0, equals)), formText(part.slice(equals + 1))];
    });
}

function formText(text: string): string {
  const octets: number[] = [];
  const encoded = Buffer.from(text.replaceAll('+', ' '), 'utf8').toString('latin1');
  for (let at = 0; at < encoded.length; at++) {
    const escaped = /^%([0-9a-f]{2})/i.exec(encoded.slice(at, at + 3));
    octets.push(escaped === null ? encoded.charCodeAt(at) : Number.parseInt(escaped[1] ?? '', 16));
    if (escaped !== null) at += 2;
  }
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(octets));
}

function headersAnswer(config: HeaderMatchConfig, headers: Headers, action: Action): Answer {
  const { require_present: required = [], deny_present: denied = [], exact = {}, regex = {} } = config;
  const named = [...required, ...denied, ...Object.keys(exact), ...Object.keys(regex)];
  const plain = (name: string): string => name.split('_').join('-');
  const inDoubt = ([name]: Headers[number]): boolean =>
    named.every((one) => one !== name) && named.some((one) => plain(one) === plain(name));
  return headers.some(inDoubt) ? 'unknown' : all(headerAnswers(config, headers, action));
}

function* headerAnswers(config: HeaderMatchConfig, headers: Headers, action: Action): Generator<Answer> {
  const { require_present: required = [], deny_present: denied = [], exact = {}, regex = {} } = config;
  const valuesOf = (wanted: string): string[] => {
    const lines = headers.filter(([name]) => name === wanted).map(([, value]) => value);
    if (action === 'allow') return lines;
    const members = lines
      .filter((line) => line.includes(','))
      .flatMap((line) => line.split(',').map((one) => one.trim()));
    return [...lines, ...members, ...(lines.length > 1 ? [lines.join(', ')] : [])];
  };
  for (const wanted of required) yield is(headers.some(([name]) => name === wanted));
  for (const wanted of denied) yield is(!headers.some(([name]) => name === wanted));
  for (const [name, list] of Object.entries(exact)) {
    yield valuesAnswer(valuesOf(name), (value) => list.includes(value), action);
  }
  for (const [name, source] of Object.entries(regex)) {
    yield valuesAnswer(valuesOf(name), (value) => new RegExp(source).test(value), action);
  }
}

function valuesAnswer(values: readonly string[], matches: (value: string) => boolean, action: Action): Answer {
  if (values.length === 0) return 'no';
  return is(action === 'deny' ? values.some(matches) : values.every(matches));
}

function all(answers: Iterable<Answer>): Answer {
  const list = [...answers];
  if (list.includes('no')) return 'no';
  return list.includes('unknown') ? 'unknown' : 'yes';
}

function is(condition: boolean): Answer {
  return condition ? 'yes' : 'no';
}
