import { StoreError, type StoreErrorCode } from '#store/store-error.js';
import { EtcdError, type EtcdErrorCode } from './etcd/etcd-error.js';

const CODES: Readonly<Record<EtcdErrorCode, StoreErrorCode>> = {
  unavailable: 'store_unavailable',
  outcome_unknown: 'outcome_unknown',
  timed_out: 'store_unavailable',
  no_space: 'store_full',
  compacted: 'store_unavailable',
  denied: 'store_unavailable',
  lease_expired: 'store_unavailable',
  rejected: 'store_unavailable',
  closed: 'store_closed',
};

/** Converts an error of etcd to an error of the store. Returns any other error unchanged. */
export function storeFailure(operation: string, failure: unknown): unknown {
  if (!(failure instanceof EtcdError)) return failure;
  return new StoreError(CODES[failure.code], `${operation}: ${failure.message}`, { cause: failure });
}

/**
 * Converts an error of etcd to an error of the store, for a step before the commit. Such a step changes no
 * policy, so the error never has the code `outcome_unknown`. Returns any other error unchanged.
 */
export function failureBeforeCommit(operation: string, failure: unknown): unknown {
  const converted = storeFailure(operation, failure);
  if (!(converted instanceof StoreError) || converted.code !== 'outcome_unknown') return converted;
  return new StoreError('store_unavailable', `${converted.message}; nothing was changed`, { cause: failure });
}
