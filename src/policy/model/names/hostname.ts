import type { HostnamePattern } from '#contracts/policy/policy-model.js';
import { type CompiledRegex, compileRegex } from './regex.js';

export type ParsedHostname =
  | { readonly pattern: HostnamePattern }
  | {
      readonly code: 'invalid_hostname' | Extract<CompiledRegex, { ok: false }>['code'];
      readonly fault: string;
    };

export function isHostnameExpression(text: string): boolean {
  return asciiForm(text) === undefined;
}

/**
 * Returns the form in which names are compared: lower case, A-labels (RFC 5890) for letters outside ASCII, no
 * final dot. Returns a text that is not a name unchanged.
 */
export function canonicalName(text: string): string {
  const name = asciiForm(text);
  return name === undefined ? text : withoutLastDot(name);
}

/**
 * Parses a hostname pattern (D9): a name, `*.` and a name, or `*`. Any other text is a regular expression.
 */
export function parseHostname(text: string): ParsedHostname {
  if (text === '') return { code: 'empty_matcher', fault: 'an empty hostname matches nothing' };
  if (text === '*') return { pattern: { kind: 'any', text: '*' } };
  const lower = asciiForm(text);
  if (lower === undefined) return parseRegex(text);
  const suffix = lower.startsWith('*.');
  const name = withoutLastDot(suffix ? lower.slice(2) : lower);
  if (name.includes('*')) {
    return {
      code: 'invalid_hostname',
      fault: '"*" stands alone or as "*." before a name; write a regular expression for anything else',
    };
  }
  const labels = name.split('.');
  const fault = nameFault(name, labels);
  if (fault !== undefined) return { code: 'invalid_hostname', fault };
  return suffix
    ? { pattern: { kind: 'suffix', labels, text: `*.${name}` } }
    : { pattern: { kind: 'exact', labels, text: name } };
}

/**
 * Whether a hostname pattern matches a DNS name; case and a final dot of the name do not matter. A name or
 * suffix is compared label by label, and a regular expression is searched in the whole name. If `name` is an
 * array of labels, as in a DNS message, a dot within a label is an ordinary character.
 */
export function matchesHostname(pattern: HostnamePattern, name: string | readonly string[]): boolean {
  if (pattern.kind === 'any') return true;
  if (pattern.kind === 'regex') {
    const compiled = compileRegex(pattern.text, { caseInsensitive: true });
    return compiled.ok && compiled.regex.test(searchedText(name));
  }
  const labels = labelsOf(name);
  const extra = labels.length - pattern.labels.length;
  if (pattern.kind === 'exact' ? extra !== 0 : extra < 1) return false;
  return pattern.labels.every((label, index) => label === labels[extra + index]);
}

/**
 * Returns why a text is not a valid hostname; undefined if it is valid. With `isLookup`, permits all
 * characters and checks only the lengths of the labels.
 */
export function hostnameFault(text: string, { isLookup = false } = {}): string | undefined {
  const name = canonicalName(text);
  if (!isLookup && !/^[a-z0-9\-_.]+$/.test(name)) return 'a name has letters, digits, "-", "_" and "."';
  return isLookup && text === '.' ? undefined : nameFault(name, withoutLastDot(name).split('.'));
}

/**
 * Compiles a list of names and hostname patterns (D9) to a test of one name. An entry that is neither is
 * compared as text.
 */
export function hostnameListTest(entries: readonly string[]): (name: string) => boolean {
  const names = new Set<string>();
  const suffixes = new Set<string>();
  for (const entry of entries) {
    const text = canonicalName(entry);
    if (text.startsWith('*.')) suffixes.add(text.slice(2));
    else names.add(text);
  }
  if (names.has('*')) return () => true;
  return (text) => {
    const name = canonicalName(text);
    if (names.has(name)) return true;
    if (suffixes.size === 0) return false;
    for (let dot = name.indexOf('.'); dot > 0; dot = name.indexOf('.', dot + 1)) {
      if (suffixes.has(name.slice(dot + 1))) return true;
    }
    return false;
  };
}

/**
 * Joins the labels of a name, in lower case, to the text in which regular expressions are searched. A dot
 * within a label becomes `\.`.
 */
export function searchedText(name: string | readonly string[]): string {
  return labelsOf(name)
    .map((label) => label.replaceAll('.', '\\.'))
    .join('.');
}

function parseRegex(text: string): ParsedHostname {
  const compiled = compileRegex(text, { caseInsensitive: true });
  return compiled.ok ? { pattern: { kind: 'regex', text } } : { code: compiled.code, fault: compiled.fault };
}

function labelsOf(name: string | readonly string[]): readonly string[] {
  if (typeof name !== 'string') return name.map((label) => label.toLowerCase());
  return withoutLastDot(name.toLowerCase()).split('.');
}

/**
 * Returns a text that consists of the characters of names and `*` in lower case and with A-labels. Returns
 * undefined for any other text, also if its letters outside ASCII have no A-label.
 */
function asciiForm(text: string): string | undefined {
  if (/^[A-Za-z0-9\-_.*]*$/.test(text)) return text.toLowerCase();
  if (!/^[A-Za-z0-9\-_.*\u0080-\u{10ffff}]*$/u.test(text)) return undefined;
  const url = `http://${text}`;
  return URL.canParse(url) ? new URL(url).hostname : undefined;
}

function withoutLastDot(name: string): string {
  return name.endsWith('.') ? name.slice(0, -1) : name;
}

function nameFault(name: string, labels: readonly string[]): string | undefined {
  if (labels.some((label) => label === '')) return 'a name has no empty label';
  if (labels.some((label) => label.length > 63)) return 'a label has at most 63 characters';
  return name.length > 253 ? 'a name has at most 253 characters' : undefined;
}
