import { PROBE_PORTS, type ProbeTick } from './probe-flows.js';

/**
 * A committed policy. Bit N of `code` is the verdict for probe port N. `calledAt`: when its write began, in
 * ms.
 */
export type CommittedCode = { readonly code: number; readonly calledAt: number };
/** From `at` on, the node enforces the commit with this position or a later one. The first commit is 1. */
export type Bound = { readonly at: number; readonly position: number };

/** A probe whose verdict is that of no policy that the node may have enforced at that time. */
type ThirdVerdict = {
  readonly node: string;
  readonly at: number;
  readonly port: number;
  readonly allowed: boolean;
  /** The positions of the policies that the node may have enforced. 0: no policy, which denies all probes. */
  readonly from: number;
  readonly to: number;
};

export type ProbeVerdict = {
  readonly thirds: readonly ThirdVerdict[];
  /** The position of the policy that the node enforced, from a time on, in ms. */
  readonly positions: readonly Bound[];
};

/** The kernel may process a datagram this much later than it was sent. */
const QUEUED_MS = 100;
/** The verdicts of a node without a policy: it denies all probes. */
const NO_POLICY = 0;

/**
 * Decides whether each probe of one node had the verdict of the old or of the new policy. A node enforces the
 * commits in their order, and may leave some out. So the verdicts need a sequence of positions that never
 * falls, in which no policy is in force before its write began, and which obeys all `bounds`. `commits` are
 * all commits in their order.
 */
export function checkProbes(
  ticks: readonly ProbeTick[],
  commits: readonly CommittedCode[],
  bounds: readonly Bound[],
): ProbeVerdict {
  const codes = [NO_POLICY, ...commits.map(({ code }) => code)];
  const sorted = bounds.toSorted((left, right) => left.at - right.at);
  const thirds: ThirdVerdict[] = [];
  const positions: Bound[] = [];
  let position = 0;
  let least = 0;
  let most = 0;
  let nextBound = 0;
  for (const { node, from, to, allowed } of ticks) {
    for (let bound = sorted[nextBound]; bound !== undefined && bound.at < from; bound = sorted[nextBound]) {
      least = Math.max(least, bound.position);
      nextBound += 1;
    }
    while ((commits[most]?.calledAt ?? Number.POSITIVE_INFINITY) <= to + QUEUED_MS) most += 1;
    for (let port = 0; port < PROBE_PORTS; port++) {
      const isAllowed = isSet(allowed, port);
      const lowest = Math.max(position, least);
      let found = lowest;
      while (found <= most && isSet(codes[found] ?? 0, port) !== isAllowed) found += 1;
      if (found > most) thirds.push({ node, at: from, port, allowed: isAllowed, from: lowest, to: most });
      else if (found > position || positions.length === 0) {
        position = found;
        positions.push({ at: from, position });
      }
    }
  }
  return { thirds, positions };
}

/** Returns the position that a node enforced at a time; null before the first probe. */
export function positionAt(positions: readonly Bound[], time: number): number | null {
  return positions.findLast(({ at }) => at <= time)?.position ?? null;
}

function isSet(bits: number, index: number): boolean {
  return ((bits >> index) & 1) === 1;
}
