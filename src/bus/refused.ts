import type { Refusal } from './policy-requests.js';

/** An effect that was refused; charts answer with the refusal itself. */
export class Refused extends Error {
  override readonly name = 'Refused';
  constructor(readonly refusal: Refusal) {
    super(refusal.detail);
  }
}

/** The outcome, or the refusal thrown. */
export function accepted<T extends { readonly kind: string }>(outcome: T | Refusal): T {
  if (isRefusal(outcome)) throw new Refused(outcome);
  return outcome;
}

export function isRefusal(outcome: { readonly kind: string }): outcome is Refusal {
  return outcome.kind === 'refused';
}
