import { parseIpv4Address } from '#addresses/ip-address.js';
import { whyNoNameMatches } from '#policy/check/warnings/hostname-lint.js';
import { isHostnameExpression, parseHostname } from '#policy/model/names/hostname.js';
import { validateExpression } from './regex-validation.js';
import type { Validation } from './validation-context.js';

/**
 * A function that returns why a text can never match, as a part of a sentence, or undefined if the text can
 * match.
 */
type NameCheck = (text: string) => string | undefined;

/** The checks of a name matcher: of the entries of its list, and of its regular expression. */
export type NameChecks = { readonly entry: NameCheck; readonly expression: NameCheck };

/** Validates a `dns_hostname`: a hostname pattern, or a regular expression (D9). */
export function validateHostname(text: string, at: string, validation: Validation): void {
  const isStored = validation.context.isStored === true;
  if (isHostnameExpression(text) && (isStored || whyNoExpression(text) === undefined)) {
    validateExpression(text, at, validation, { caseInsensitive: true });
  } else reportName(text, at, isStored ? patternFault : whyNoLookup, validation);
}

/**
 * Validates an entry of a list of names. A stored policy may have entries that can never match, because an
 * older version of Weir accepted them.
 */
export function validateName(text: string, at: string, { entry }: NameChecks, validation: Validation): void {
  if (text === '' || validation.context.isStored !== true) reportName(text, at, entry, validation);
}

export function validateNameExpression(text: string, at: string, checks: NameChecks, validation: Validation): void {
  const { problems, context } = validation;
  if (text.startsWith('*') && patternFault(text) === undefined) {
    const message = `A string is a regular expression, and this is none; write a list for names: [${JSON.stringify(text)}].`;
    problems.add(at, 'invalid_regex', message);
  } else if (context.isStored === true || checks.expression(text) === undefined) {
    validateExpression(text, at, validation);
  } else reportName(text, at, checks.expression, validation);
}

function reportName(text: string, at: string, check: NameCheck, { problems }: Validation): void {
  if (text === '') {
    problems.add(at, 'empty_matcher', 'An empty text matches nothing.');
    return;
  }
  const fault = check(text);
  if (fault === undefined) return;
  const instead = nameWithin(text);
  const hint = instead === text || check(instead) !== undefined ? '' : `; write ${JSON.stringify(instead)}`;
  problems.add(at, 'invalid_hostname', `No name matches ${JSON.stringify(text)}: ${fault}${hint}.`);
}

/**
 * Returns why a text is not a useful regular expression: it contains only literal characters and stars, like
 * a name, and can never match.
 */
const whyNoExpression: NameCheck = (text) => (METACHARACTERS.test(text) ? undefined : whyNoNameMatches(text));

const METACHARACTERS = /[\\^$()[\]{}|+?]/;
const isAddress = (text: string) => parseIpv4Address(text) !== undefined;
const whyNoLookup: NameCheck = (text) =>
  isAddress(text) ? 'an address is not looked up; write it in dst_ips' : whyNoHost(text);

/** The server name in a TLS hello. */
export const SERVER_NAME: NameChecks = {
  entry: (text) =>
    isAddress(text) ? 'a client sends no address as server name; write it in dst_ips' : whyNoHost(text),
  expression: whyNoExpression,
};

/** The host of a request without its port, which can be an address. */
export const REQUEST_HOST: NameChecks = {
  entry: (text) => (isAddress(text) || /^\[[0-9A-Fa-f:.]{2,45}\]$/.test(text) ? undefined : whyNoHost(text)),
  expression: () => undefined,
};

/** A DNS name of a certificate, which can have a star within its first label. */
export const CERTIFICATE_DNS_NAME: NameChecks = {
  entry: (text) => (isAddress(text) ? undefined : whyNoHost(text.replace(/^[\w-]*\*[\w-]*(?=\.)/, '*'))),
  expression: whyNoExpression,
};

/** A common name of a certificate, which can be any text. */
export const CERTIFICATE_COMMON_NAME: NameChecks = { entry: () => undefined, expression: () => undefined };

function patternFault(text: string): string | undefined {
  const parsed = parseHostname(text);
  return 'fault' in parsed ? parsed.fault : undefined;
}

function whyNoHost(text: string): string | undefined {
  if (isHostnameExpression(text)) {
    return METACHARACTERS.test(text)
      ? `a list has names; write { "regex": ${JSON.stringify(text)} } for a regular expression`
      : (whyNoNameMatches(text) ?? 'it is not a name');
  }
  const parsed = parseHostname(text);
  if ('fault' in parsed) return parsed.fault;
  const { pattern } = parsed;
  if (pattern.kind !== 'exact' && pattern.kind !== 'suffix') return undefined;
  if (pattern.labels.some((label) => label.startsWith('-'))) return 'a label does not begin with "-"';
  return /^(?:[0-9]+|0x[0-9a-f]*)$/.test(pattern.labels.at(-1) ?? '')
    ? 'the last label of a name is not a number'
    : undefined;
}

/** Returns the name that a text such as `https://example.com:443/` or ` .example.com` probably means. */
function nameWithin(text: string): string {
  const [host = ''] = text
    .trim()
    .replace(/^[a-z][a-z0-9+.-]*:\/\//i, '')
    .replace(/^[^/?#]*@/, '')
    .split(/[/?#]/, 1);
  return host
    .replace(/:[0-9]*$/, '')
    .replace(/^(?:\*+\.*|\.+)(?=[^*.])/, '*.')
    .replace(/(^|\.)-+/g, '$1');
}
