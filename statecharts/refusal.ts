import type { Refusal, RefusalCode } from '#bus/policy-requests.js';
import { sentenceOf } from './failure.js';

export function refusal(code: RefusalCode, detail: string): Refusal {
  return { kind: 'refused', code, detail };
}

/** A refused effect rejects with an error that carries the refusal; any other failure becomes `code`. */
export function refusalOf(failure: unknown, code: RefusalCode): Refusal {
  if (failure instanceof Error && 'refusal' in failure) return failure.refusal as Refusal;
  return refusal(code, sentenceOf(failure));
}
