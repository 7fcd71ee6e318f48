import type { Proof, ProofMismatch, ProofSamples } from '#contracts/policy/proof-types.js';
import type { LoadedObject } from '#dataplane/object/loaded-object.js';

/**
 * Returns the first packet of the samples for which the staged policy gives another verdict word than the
 * sample expects; null if there is none. Throws if the samples are not of exactly the families that the
 * datapath enforces, because a family without a proof must not come in force (B5).
 */
export function mismatchOf(
  { slots, prover, ipv6 }: LoadedObject,
  samples: ProofSamples,
  yieldToRequests: () => void,
): ProofMismatch | null {
  const provers = ipv6 === null ? [prover] : [prover, ipv6.prover];
  if (provers.length !== samples.length)
    throw new Error(`prove a policy program: ${provers.length} families need a sample, and got ${samples.length}`);
  for (const [at, sample] of samples.entries()) {
    const mismatch = provers[at]?.mismatch(sample, slots.filledSlot, yieldToRequests) ?? null;
    if (mismatch !== null) return mismatch;
  }
  return null;
}

/** Returns the result of a proof in which the datapath returned each expected verdict word. */
export function proofBy(samples: ProofSamples): Proof {
  const sumOf = (counts: readonly number[]) => counts.reduce((sum, count) => sum + count, 0);
  const classes = samples.flatMap((sample) => sample.classes ?? []);
  return {
    classes: classes.length < samples.length ? null : sumOf(classes),
    checked: sumOf(samples.map(({ expected }) => expected.length)),
    complete: samples.every(({ complete }) => complete),
  };
}
