import type { NameMatchObject, TlsNameMatch } from '#contracts/policy/policy-document.js';
import type { Intact } from '#policy/document/shape.js';
import { type NameChecks, validateName, validateNameExpression } from './hostname-validation.js';
import { validateExpression } from './regex-validation.js';
import type { Validation } from './validation-context.js';

/** Validates a matcher of names in TLS. `checks` find names that can never match. */
export function validateTlsName(
  matcher: Intact<TlsNameMatch>,
  at: string,
  checks: NameChecks,
  validation: Validation,
): void {
  if (typeof matcher === 'string') validateNameExpression(matcher, at, checks, validation);
  else if (Array.isArray(matcher)) {
    if (matcher.length === 0) validation.problems.add(at, 'empty_matcher', 'An empty list of names matches nothing.');
    validateNames(matcher as readonly (string | undefined)[], at, checks, validation);
  } else validateNameObject(matcher as Intact<NameMatchObject>, at, checks, validation);
}

/** Validates a name matcher. The matcher must have exact names, a regular expression, or both. */
export function validateNameObject(
  matcher: Intact<NameMatchObject>,
  at: string,
  checks: NameChecks,
  validation: Validation,
): void {
  const { exact = [], regex } = matcher;
  if (exact.length === 0 && regex === undefined && !validation.damaged.has(matcher)) {
    validation.problems.add(at, 'empty_matcher', 'A name matcher needs exact or regex.');
  }
  validateNames(exact, `${at}/exact`, checks, validation);
  if (regex !== undefined) validateNameExpression(regex, `${at}/regex`, checks, validation);
}

function validateNames(
  names: readonly (string | undefined)[],
  at: string,
  checks: NameChecks,
  validation: Validation,
): void {
  for (const [index, name] of names.entries()) {
    if (name !== undefined) validateName(name, `${at}/${index}`, checks, validation);
  }
}

/** Reports every empty string in a list of exact names. */
export function validateExact(texts: readonly (string | undefined)[], at: string, { problems }: Validation): void {
  for (const [index, text] of texts.entries()) {
    if (text === '') problems.add(`${at}/${index}`, 'empty_matcher', 'An empty text matches nothing.');
  }
}

export function validateRegex(source: string, at: string, validation: Validation): void {
  validateExpression(source, at, validation);
}
