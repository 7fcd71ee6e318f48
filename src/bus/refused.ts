import type { Refusal } from '#contracts/refusal.js';

/** A statechart that catches this error sends the refusal to the sender of the request. */
export class Refused extends Error {
  override readonly name = 'Refused';
  constructor(readonly refusal: Refusal) {
    super(refusal.detail);
  }
}

/** Returns the outcome of a request. Throws a `Refused` error if the outcome is a refusal. */
export function accepted<T extends { readonly kind: string }>(outcome: T | Refusal): T {
  if (isRefusal(outcome)) throw new Refused(outcome);
  return outcome;
}

export function isRefusal(outcome: { readonly kind: string }): outcome is Refusal {
  return outcome.kind === 'refused';
}
