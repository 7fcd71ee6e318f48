import { ofFamily } from '#addresses/ip-address.js';
import { u32At } from '#arrays/read.js';
import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Family, Group, Policy } from '#contracts/policy/policy-model.js';
import { type GroupChange, groupChange, ranksOf } from '#policy/model/rules/group-change.js';
import { affectedSources } from '#policy/model/sources/rule-scope.js';
import { isSameResolution, sameSources } from '#policy/model/sources/same-sources.js';
import { SourceIndex } from '#policy/model/sources/source-index.js';
import { type Density, ProofCorners } from './proof-corners.js';
import { type DecidedPackets, ProofPackets, type Renewal } from './proof-packets.js';
import { ReferenceWalk } from './proof-walk.js';
import { SourceRanges } from './source-ranges.js';

/**
 * `fromEverywhere` takes runs of `RUN` adjacent rules, because adjacent rules are adjacent in memory, which
 * is fast. Each of its `ROUNDS` rounds takes every `ROUNDS`th run.
 */
const RUN = 8;
const ROUNDS = 64;
/** The number of additional packets to reserve memory for, beyond the size of the previous sample. */
const FEW = 1 << 12;
/** The difference between the verdict words (rank << 4 | verdict) of two neighbouring rules. */
const RANK = 16;

type KeptSample = {
  readonly policy: Policy;
  readonly resolution: SelectorResolution;
  readonly density: Density;
  readonly decided: DecidedPackets;
};

/**
 * Makes the proof packets of one family for large policies, and keeps the packets of the latest policy. The
 * packets consist of one run for each group alone, then one run for each group combined with other groups.
 * - If the next policy differs in a few groups, only packets made of rules in these groups, or from their
 *   sources, are decided again.
 * - For all other packets the deciding rule stays the same, because a group applies only to its own sources.
 *   Only the rank of the deciding rule changes if an earlier group has more or fewer rules.
 */
export class ProofMemory {
  #kept: KeptSample | undefined;
  #index: { readonly groups: readonly Group[]; readonly sources: SourceIndex } | undefined;

  constructor(readonly family: Family = 'ipv4') {}

  decided(policy: Policy, resolution: SelectorResolution, density: Density): DecidedPackets {
    const kept = this.#kept;
    this.#kept = undefined;
    const room = kept === undefined ? undefined : kept.decided.expected.length + FEW;
    const { family } = this;
    const walk = new ReferenceWalk(policy, this.sourcesOf(policy, resolution));
    const packets = new ProofPackets(walk, room, undefined, family);
    const corners = new ProofCorners(packets, density);
    if (kept !== undefined && isComparable(kept, policy, resolution, density)) addChanged(kept, corners);
    else addAll(corners);
    if (packets.exhausted) return fromEverywhere(new ProofPackets(walk, undefined, undefined, family), density);
    const decided = packets.decided();
    this.#kept = { policy, resolution, density, decided };
    return decided;
  }

  sourcesOf({ groups }: Policy, resolution: SelectorResolution): SourceIndex {
    const known = this.#index;
    const isKnown = known !== undefined && sameSources(known.groups, groups) && known.sources.isFor(groups, resolution);
    const sources = isKnown ? known.sources : new SourceIndex(groups, resolution);
    this.#index = { groups, sources };
    return sources;
  }
}

function isComparable(kept: KeptSample, policy: Policy, resolution: SelectorResolution, density: Density): boolean {
  const { action, mode } = kept.policy.default;
  if (!isSameResolution(kept.resolution, resolution)) return false;
  return kept.density === density && action === policy.default.action && mode === policy.default.mode;
}

function addAll(corners: ProofCorners): void {
  const { packets } = corners;
  const { groups } = packets.walk.policy;
  for (let group = 0; group < groups.length && !packets.exhausted; group++) addOwn(corners, group);
  for (let group = 0; group < groups.length && !packets.exhausted; group++) {
    packets.beginRun();
    corners.addAcross(group);
  }
}

function addOwn(corners: ProofCorners, group: number): void {
  corners.packets.beginRun();
  corners.addInside(group);
  corners.addBeside(group);
}

function addChanged({ policy, decided }: KeptSample, corners: ProofCorners): void {
  const { packets } = corners;
  const { groups } = packets.walk.policy;
  const before = policy.groups;
  const change = groupChange(before, groups);
  const renewal = renewalOf(before, groups, change, packets);
  packets.keepRuns(decided, 0, change.from, renewal);
  for (let group = change.from; group < change.after; group++) addOwn(corners, group);
  packets.keepRuns(decided, change.before, before.length, renewal);
  for (let group = 0; group < groups.length; group++) {
    packets.beginRun();
    const isChanged = (number: number): boolean => number >= change.from && number < change.after;
    if (before.length !== groups.length || isChanged(group)) {
      // Make all packets of this group again that combine it with other groups. Either the group changed, or
      // the number of groups changed, which affects the random choice of the other groups.
      corners.addAcross(group);
      continue;
    }
    let at = u32At(decided.runs, before.length + group);
    corners.addAcross(group, (other) => {
      const own = at++;
      if (isChanged(other)) return false;
      packets.keep(decided, own, own + 1, renewal);
      return true;
    });
  }
}

function renewalOf(
  before: readonly Group[],
  after: readonly Group[],
  change: GroupChange,
  { walk: { resolution }, family }: ProofPackets,
): Renewal {
  const changed = [...before.slice(change.from, change.before), ...after.slice(change.from, change.after)];
  const ranks = ranksOf(before, 0, change.before);
  return {
    sources: new SourceRanges(
      changed.flatMap((group) => affectedSources(group, resolution)),
      family,
    ),
    behind: ranks * RANK,
    by: (ranksOf(after, 0, change.after) - ranks) * RANK,
  };
}

/**
 * Makes a smaller sample, for a policy whose whole sample would exceed the work limit. Takes rules from all
 * groups in turn, so that the sample does not consist of the first groups only.
 */
function fromEverywhere(packets: ProofPackets, density: Density): DecidedPackets {
  const { groups } = packets.walk.policy;
  const corners = new ProofCorners(packets, density);
  const rules = groups.flatMap(({ sources, selectors, rules: own }, group) =>
    ofFamily(affectedSources({ sources, selectors }, packets.walk.resolution), packets.family).length === 0
      ? []
      : own.map((_, place) => ({ group, place })),
  );
  for (let round = 0; round < ROUNDS; round++) {
    for (let first = round * RUN; first < rules.length; first += ROUNDS * RUN) {
      if (packets.exhausted) return packets.decided();
      for (const { group, place } of rules.slice(first, first + RUN)) corners.addInsideOf(group, place);
    }
  }
  return packets.decided();
}
