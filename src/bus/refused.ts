import type { Refusal } from './policy-requests.js';

/** A request that was refused, as an error. Charts return its refusal to the requester. */
export class Refused extends Error {
  override readonly name = 'Refused';
  constructor(readonly refusal: Refusal) {
    super(refusal.detail);
  }
}

/** Returns the outcome, or throws the refusal. */
export function accepted<T extends { readonly kind: string }>(outcome: T | Refusal): T {
  if (isRefusal(outcome)) throw new Refused(outcome);
  return outcome;
}

export function isRefusal(outcome: { readonly kind: string }): outcome is Refusal {
  return outcome.kind === 'refused';
}
