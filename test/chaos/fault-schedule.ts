import { Random } from '#test/seed.js';

/**
 * `kill_…` ends a process, which is started again when the fault ends. `stop_…` is SIGSTOP. `cut_client` cuts
 * the links between a member and clients, and `cut_peer` those between a member and the other members.
 * `slow_member` lets a member run for a fifth of the time, as with a slow disk.
 */
type MemberFaultKind = 'kill_member' | 'stop_member' | 'cut_client' | 'cut_peer' | 'slow_member';
type NodeFaultKind = 'kill_node' | 'stop_node';
type ClusterFaultKind = 'compact' | 'kill_all_members';

/**
 * A fault starts `at` ms after the start of the run and ends `forMs` ms later; `forMs` of a compaction is 0.
 * `target` is the name of a member or node, or null for the whole cluster.
 */
export type Fault = { readonly at: number; readonly forMs: number } & (
  | { readonly kind: MemberFaultKind | NodeFaultKind; readonly target: string }
  | { readonly kind: ClusterFaultKind; readonly target: null }
);

export type FaultScheduleOptions = {
  readonly seed: number;
  readonly durationMs: number;
  /** The names of the members of etcd. */
  readonly members: readonly string[];
  /** The names of the nodes. */
  readonly nodes: readonly string[];
};

/** No fault is in force within this time before the end of a run. */
export const QUIET_MS = 5_000;
/** After a fault, a member needs this time to follow the leader again. Until then it counts as faulty. */
export const RECOVERY_MS = 1_000;
/** The shortest and the longest time from the start of a fault to the start of the next fault. */
const PAUSE_MS = [200, 1_500] as const;
/** No fault except a compaction is shorter than this. */
const SHORTEST_MS = 300;
const ALL_MEMBERS_CHANCE = 0.02;
const COMPACTION_CHANCE = 0.1;

const LONGEST_MS: Readonly<Record<Fault['kind'], number>> = {
  kill_member: 3_000,
  stop_member: 4_000,
  cut_client: 4_000,
  cut_peer: 4_000,
  slow_member: 4_000,
  kill_node: 3_000,
  stop_node: 8_000,
  compact: 0,
  kill_all_members: 2_000,
};
const MEMBER_KINDS: readonly MemberFaultKind[] = [
  'kill_member',
  'stop_member',
  'cut_client',
  'cut_peer',
  'slow_member',
];
const NODE_KINDS: readonly NodeFaultKind[] = ['kill_node', 'stop_node'];

/**
 * Returns the faults of a run in the order of their starts. The same options give the same faults. At any
 * time at most a minority of the members is faulty, except after `kill_all_members`. At least one node has no
 * fault, if there are several. A target has one fault at a time. Throws a RangeError if the run is too short
 * for a fault.
 */
export function faultSchedule({ seed, durationMs, members, nodes }: FaultScheduleOptions): Fault[] {
  const random = new Random(seed);
  const lastEnd = durationMs - QUIET_MS;
  if (lastEnd < PAUSE_MS[1] + SHORTEST_MS) throw new RangeError(`a run of ${durationMs} ms is too short for faults`);
  const minority = Math.floor((members.length - 1) / 2);
  const mostNodes = Math.max(1, nodes.length - 1);
  /** The time from which a target has no fault. */
  const freeAt = new Map<string, number>();
  const faults: Fault[] = [];

  for (let at = random.between(...PAUSE_MS); at + SHORTEST_MS <= lastEnd; at += random.between(...PAUSE_MS)) {
    const isFree = (target: string): boolean => (freeAt.get(target) ?? 0) <= at;
    const lengthOf = (kind: Fault['kind']): number =>
      Math.min(random.between(SHORTEST_MS, LONGEST_MS[kind]), lastEnd - at);
    const freeMembers = members.filter(isFree);
    const freeNodes = nodes.filter(isFree);
    const hasAllMembers = members.length > 0 && freeMembers.length === members.length;

    if (hasAllMembers && random.chance(ALL_MEMBERS_CHANCE)) {
      const forMs = lengthOf('kill_all_members');
      faults.push({ at, kind: 'kill_all_members', target: null, forMs });
      for (const member of members) freeAt.set(member, at + forMs + RECOVERY_MS);
      continue;
    }
    // A compaction is drawn apart from the other kinds: it is possible at all times, and would be drawn most
    // often while the members and nodes have faults.
    if (members.length > 0 && random.chance(COMPACTION_CHANCE)) {
      faults.push({ at, kind: 'compact', target: null, forMs: 0 });
      continue;
    }
    const kinds: (MemberFaultKind | NodeFaultKind)[] = [];
    if (members.length - freeMembers.length < minority) kinds.push(...MEMBER_KINDS);
    if (freeNodes.length > 0 && nodes.length - freeNodes.length < mostNodes) kinds.push(...NODE_KINDS);
    if (kinds.length === 0) continue;
    const kind = random.pick(kinds);
    const isOfNode = kind === 'kill_node' || kind === 'stop_node';
    const target = random.pick(isOfNode ? freeNodes : freeMembers);
    const forMs = lengthOf(kind);
    faults.push({ at, kind, target, forMs });
    freeAt.set(target, at + forMs + (isOfNode ? 0 : RECOVERY_MS));
  }
  return faults;
}
