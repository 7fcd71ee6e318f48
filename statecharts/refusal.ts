import { type Refusal, type RefusalCode, refusal } from '#contracts/refusal.js';
import { sentenceOf } from './failure.js';

/**
 * Converts the error of an actor to a refusal. If the error has a property `refusal`, returns that property.
 * Otherwise returns a refusal with `code` and the message of the error.
 */
export function refusalOf(failure: unknown, code: RefusalCode): Refusal {
  if (failure instanceof Error && 'refusal' in failure) return failure.refusal as Refusal;
  return refusal(code, sentenceOf(failure));
}
