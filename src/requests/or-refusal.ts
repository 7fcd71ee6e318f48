import type { Refusal, RefusalCode } from '#bus/policy-requests.js';
import { refusal } from '#statecharts/refusal.js';
import { StoreError } from '#store/store-error.js';

/**
 * Runs `act`. If it throws a `StoreError`, returns a refusal with the message of the error. Rethrows all
 * other errors.
 */
export async function orRefusal<T>(act: () => Promise<T | Refusal>): Promise<T | Refusal> {
  try {
    return await act();
  } catch (failure) {
    if (!(failure instanceof StoreError)) throw failure;
    const code: RefusalCode = failure.code === 'revision_conflict' ? 'precondition_failed' : 'store_unavailable';
    return refusal(code, failure.message);
  }
}
