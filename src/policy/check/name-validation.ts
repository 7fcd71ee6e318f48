import type { NameMatchObject, TlsNameMatch } from '#contracts/policy-document.js';
import type { Intact } from '#policy/document/intact.js';
import { validateExpression } from './regex-validation.js';
import type { Validation } from './validation-context.js';

export function validateTlsName(matcher: Intact<TlsNameMatch>, at: string, validation: Validation): void {
  if (typeof matcher === 'string') validateRegex(matcher, at, validation);
  else if (Array.isArray(matcher)) validateNames(matcher as readonly (string | undefined)[], at, validation);
  else validateNameObject(matcher as Intact<NameMatchObject>, at, validation);
}

function validateNames(names: readonly (string | undefined)[], at: string, validation: Validation): void {
  if (names.length === 0) validation.problems.add(at, 'empty_matcher', 'An empty list of names matches nothing.');
  validateExact(names, at, validation);
}

/** Validates a name matcher. The matcher must have exact names, a regular expression, or both. */
export function validateNameObject(matcher: Intact<NameMatchObject>, at: string, validation: Validation): void {
  const { exact = [], regex } = matcher;
  if (exact.length === 0 && regex === undefined && !validation.damaged.has(matcher)) {
    validation.problems.add(at, 'empty_matcher', 'A name matcher needs exact or regex.');
  }
  validateExact(exact, `${at}/exact`, validation);
  if (regex !== undefined) validateRegex(regex, `${at}/regex`, validation);
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
