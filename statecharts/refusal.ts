import type { Refusal, RefusalCode } from '#bus/policy-requests.js';
import { sentenceOf } from './failure.js';

export function refusal(code: RefusalCode, detail: string): Refusal {
  return { kind: 'refused', code, detail };
}

/** An effect that was refused rejects with an error that has the refusal; any other failure is `code`. */
export function refusalOf(failure: unknown, code: RefusalCode): Refusal {
  if (failure instanceof Error && 'refusal' in failure) return failure.refusal as Refusal;
  return refusal(code, sentenceOf(failure));
}
