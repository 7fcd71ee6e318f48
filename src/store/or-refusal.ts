import type { Refusal, RefusalCode } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { StoreError, type StoreErrorCode } from './store-error.js';

const REFUSALS: Readonly<Partial<Record<StoreErrorCode, RefusalCode>>> = {
  node_unknown: 'not_found',
  revision_conflict: 'precondition_failed',
  store_full: 'store_full',
  seal_key_missing: 'seal_key_needed',
  outcome_unknown: 'outcome_unknown',
};

/**
 * Runs `act`. If it throws a `StoreError`, returns a refusal with the message of the error. Rethrows all
 * other errors.
 */
export async function orRefusal<T>(act: () => Promise<T | Refusal>): Promise<T | Refusal> {
  try {
    return await act();
  } catch (failure) {
    if (!(failure instanceof StoreError)) throw failure;
    return refusal(REFUSALS[failure.code] ?? 'store_unavailable', failure.message);
  }
}
