import type { HostnamePattern } from '#contracts/policy-model.js';
import { type CompiledRegex, compileRegex } from './regex.js';

export type ParsedHostname =
  | { readonly pattern: HostnamePattern }
  | {
      readonly code: 'invalid_hostname' | Extract<CompiledRegex, { ok: false }>['code'];
      readonly fault: string;
    };

/** Whether the text of a hostname pattern is parsed as a regular expression. */
export function isHostnameExpression(text: string): boolean {
  return !/^[A-Za-z0-9\-_.*]*$/.test(text);
}

/**
 * Parses a hostname pattern (D9): a name, `*.` and a name, or `*`. Any other text is a regular expression.
 */
export function parseHostname(text: string): ParsedHostname {
  if (text === '') return { code: 'empty_matcher', fault: 'an empty hostname matches nothing' };
  if (text === '*') return { pattern: { kind: 'any', text: '*' } };
  if (isHostnameExpression(text)) return parseRegex(text);
  const lower = text.toLowerCase();
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

function withoutLastDot(name: string): string {
  return name.endsWith('.') ? name.slice(0, -1) : name;
}

function nameFault(name: string, labels: readonly string[]): string | undefined {
  if (labels.some((label) => label === '')) return 'a name has no empty label';
  if (labels.some((label) => label.length > 63)) return 'a label has at most 63 characters';
  return name.length > 253 ? 'a name has at most 253 characters' : undefined;
}
