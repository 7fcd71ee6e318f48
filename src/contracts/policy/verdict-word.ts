import type { Verdict } from './policy-model.js';

/**
 * A verdict word is `rank << 4 | audited << 3 | verdict`. Among the verdict words that match a packet, the
 * smallest decides. The rank has 27 bits, and bit 31 is never set. `enum verdict` of `bpf/weir.h` has the
 * same numbers as this table.
 */
export const VERDICT_NUMBER = { allow: 1, deny: 2, audit: 3, redirect: 4 } as const satisfies Record<Verdict, number>;
export const MAX_RANKS = 1 << 26;
/** The number that stands for "no rule matches". It is larger than every verdict word. */
export const NO_MATCH = 0x7fff_ffff;

const RANK_SHIFT = 4;
const AUDITED = 8;
const VERDICT_BITS = 7;

const VERDICTS: readonly (Verdict | undefined)[] = Array.from({ length: VERDICT_BITS + 1 }, (_, number) =>
  (Object.keys(VERDICT_NUMBER) as Verdict[]).find((verdict) => VERDICT_NUMBER[verdict] === number),
);

export function verdictWord(rank: number, verdict: Verdict, audited: boolean): number {
  return wordAt(rank, outcomeBits(verdict, audited));
}

/** Returns the verdict word for this verdict and audit bit at rank 0. */
export function outcomeBits(verdict: Verdict, audited: boolean): number {
  return (audited ? AUDITED : 0) | VERDICT_NUMBER[verdict];
}

/** Returns `word` with its rank replaced by `rank`; verdict and audit bit stay unchanged. */
export function wordAt(rank: number, word: number): number {
  return (rank << RANK_SHIFT) | (word & (AUDITED | VERDICT_BITS));
}

export function rankOf(word: number): number {
  return word >>> RANK_SHIFT;
}

/**
 * Returns the verdict in a verdict word; `undefined` if its low three bits are not the number of a verdict.
 */
export function verdictOf(word: number): Verdict | undefined {
  return VERDICTS[word & VERDICT_BITS];
}

/**
 * Returns whether an open flow with this verdict word is suspended (a later policy denies it). Must equal
 * `refusal_of` in `bpf/classify/drop_reason.h`.
 */
export function isRefused(word: number): boolean {
  const verdict = verdictOf(word);
  return verdict === undefined || verdict === 'deny' || (verdict === 'redirect' && !isAudited(word));
}

export function isAudited(word: number): boolean {
  return (word & AUDITED) !== 0;
}
