import { Random } from '#test/seed.js';
import { WRITE_STEPS, type WriteStep } from './write-steps.js';

/**
 * `kill_…` ends a process, which is started again when the fault ends. `stop_…` is SIGSTOP. `cut_client` cuts
 * the links between a member and clients, `cut_responses` only the direction to the clients, and `cut_peer`
 * the links between a member and the other members. `slow_member` lets a member run for a fifth of the time,
 * as with a slow disk.
 */
type MemberFaultKind = 'kill_member' | 'stop_member' | 'cut_client' | 'cut_responses' | 'cut_peer' | 'slow_member';
type NodeFaultKind = 'kill_node' | 'stop_node';
/** These faults begin when the target node reaches a given step of a policy write. */
type WriterFaultKind = 'kill_writer_at' | 'stop_writer_at';
type ClusterFaultKind = 'compact' | 'kill_all_members';
/**
 * These faults begin when any writer makes the step. `cut_all_responses_at` drops all that the members send
 * to clients. `lose_commit_at` does so for the member of the writer between the votes and the commit: the
 * commit reaches etcd, and its response is lost. `collect_at` stops the writer and collects garbage, as the
 * leader does each hour.
 */
type AnyWriterFaultKind = 'cut_all_responses_at' | 'lose_commit_at' | 'collect_at';

/**
 * A fault starts `at` ms after the start of the run and ends `forMs` ms later; `forMs` of a compaction and of
 * a collection is 0. A fault with a step waits for the step for at most `STEP_WAIT_MS`, and then starts.
 * `target` is the name of a member or node, or null for the whole cluster.
 */
export type Fault = MemberFault | NodeFault | WriterFault | ClusterFault | AnyWriterFault;
type Times = { readonly at: number; readonly forMs: number };
type MemberFault = Times & { readonly kind: MemberFaultKind; readonly target: string };
type NodeFault = Times & { readonly kind: NodeFaultKind; readonly target: string };
type WriterFault = Times & {
  readonly kind: WriterFaultKind;
  readonly target: string;
  readonly step: WriteStep;
};
type ClusterFault = Times & { readonly kind: ClusterFaultKind; readonly target: null };
type AnyWriterFault = Times & {
  readonly kind: AnyWriterFaultKind;
  readonly target: null;
  readonly step: WriteStep;
};

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
/**
 * The shortest fault that loses the response of a commit. A writer leaves a member only after one second of
 * silence; before that, it would still get the late response.
 */
const SHORTEST_LOSS_MS = 1_500;
/** How long a fault waits for the step of a writer. Without the step, it has no effect. */
export const STEP_WAIT_MS = 5_000;
const ALL_MEMBERS_CHANCE = 0.2;
/** The share of lost responses among the faults that affect all members. */
const LOST_SHARE = 0.75;
const LOST_RESPONSES = [
  { kind: 'cut_all_responses_at', target: null, step: 'lock_taken' },
  { kind: 'lose_commit_at', target: null, step: 'proposed' },
  { kind: 'lose_commit_at', target: null, step: 'proposed' },
  { kind: 'lose_commit_at', target: null, step: 'proposed' },
] as const;
/** The probability that the next fault is a compaction of etcd, and the same for a garbage collection. */
const WHOLE_CHANCE = 0.05;

const MAX_MS: Readonly<Record<Fault['kind'], number>> = {
  kill_member: 3_000,
  stop_member: 4_000,
  cut_client: 4_000,
  cut_responses: 4_000,
  cut_peer: 4_000,
  slow_member: 4_000,
  kill_node: 3_000,
  stop_node: 8_000,
  kill_writer_at: 3_000,
  stop_writer_at: 8_000,
  compact: 0,
  kill_all_members: 2_000,
  cut_all_responses_at: 2_500,
  lose_commit_at: 3_000,
  collect_at: 0,
};
const MEMBER_KINDS: readonly MemberFaultKind[] = [
  'kill_member',
  'stop_member',
  'cut_client',
  'cut_responses',
  'cut_peer',
  'slow_member',
];
const NODE_KINDS: readonly NodeFaultKind[] = ['kill_node', 'stop_node'];
/** Faults at a step are drawn more often than other faults of nodes. */
const WRITER_KINDS: readonly WriterFaultKind[] = [
  'kill_writer_at',
  'kill_writer_at',
  'kill_writer_at',
  'stop_writer_at',
  'stop_writer_at',
];
/** The steps before the commit, in which a write relies on the parts of its policy in etcd. */
const STEPS_BEFORE_COMMIT: readonly WriteStep[] = ['lock_taken', 'proposed', 'voted'];

/**
 * Returns the faults of a run in the order of their starts. The same options give the same faults. At any
 * time at most a minority of the members is faulty, except during faults of all members. At least one node
 * has no fault, if there are several. A target has one fault at a time. Throws a RangeError if the run is too
 * short for a fault.
 */
export function faultSchedule({ seed, durationMs, members, nodes }: FaultScheduleOptions): Fault[] {
  const random = new Random(seed);
  const lastEnd = durationMs - QUIET_MS;
  if (lastEnd < PAUSE_MS[1] + SHORTEST_MS) throw new RangeError(`a run of ${durationMs} ms is too short for faults`);
  const minority = Math.floor((members.length - 1) / 2);
  const mostNodes = Math.max(1, nodes.length - 1);
  /** For each target, the time when it has recovered from its last fault. */
  const freeAt = new Map<string, number>();
  const faults: Fault[] = [];

  for (let at = random.between(...PAUSE_MS); at + SHORTEST_MS <= lastEnd; at += random.between(...PAUSE_MS)) {
    const isFree = (target: string): boolean => (freeAt.get(target) ?? 0) <= at;
    const freeMembers = members.filter(isFree);
    const freeNodes = nodes.filter(isFree);
    const hasAllMembers = members.length > 0 && freeMembers.length === members.length;
    const left = lastEnd - at;
    const canWait = members.length > 0 && nodes.length > 0 && left >= STEP_WAIT_MS + SHORTEST_MS;

    const isWaiting = (kind: Fault['kind']): boolean => kind.endsWith('_at');
    const lengthOf = (kind: Fault['kind']): number => {
      const shortest = kind === 'lose_commit_at' ? SHORTEST_LOSS_MS : SHORTEST_MS;
      return Math.min(random.between(shortest, MAX_MS[kind]), left - (isWaiting(kind) ? STEP_WAIT_MS : 0));
    };
    const freeAfter = ({ kind, forMs }: Fault, recoveryMs: number): number =>
      at + (isWaiting(kind) ? STEP_WAIT_MS : 0) + forMs + recoveryMs;

    if (hasAllMembers && random.chance(ALL_MEMBERS_CHANCE)) {
      const isLoss = canWait && random.chance(LOST_SHARE);
      const chosen = isLoss ? random.pick(LOST_RESPONSES) : ({ kind: 'kill_all_members', target: null } as const);
      const fault: Fault = { at, ...chosen, forMs: lengthOf(chosen.kind) };
      faults.push(fault);
      for (const member of members) freeAt.set(member, freeAfter(fault, RECOVERY_MS));
      continue;
    }
    // Compactions of etcd and collections of unused policy parts are drawn apart from the other kinds: they
    // are possible at all times, and would be drawn most often while the members and nodes have faults.
    if (members.length > 0 && random.chance(WHOLE_CHANCE)) {
      faults.push({ at, kind: 'compact', target: null, forMs: 0 });
      continue;
    }
    if (canWait && random.chance(WHOLE_CHANCE)) {
      faults.push({ at, kind: 'collect_at', target: null, step: random.pick(STEPS_BEFORE_COMMIT), forMs: 0 });
      continue;
    }
    const kinds: (MemberFaultKind | NodeFaultKind | WriterFaultKind)[] = [];
    if (members.length - freeMembers.length < minority) kinds.push(...MEMBER_KINDS);
    if (freeNodes.length > 0 && nodes.length - freeNodes.length < mostNodes)
      kinds.push(...NODE_KINDS, ...(canWait ? WRITER_KINDS : []));
    if (kinds.length === 0) continue;
    const kind = random.pick(kinds);
    const isOfMember = isMemberKind(kind);
    const target = random.pick(isOfMember ? freeMembers : freeNodes);
    const forMs = lengthOf(kind);
    const fault: Fault =
      kind === 'kill_writer_at' || kind === 'stop_writer_at'
        ? { at, kind, target, step: random.pick(WRITE_STEPS), forMs }
        : isMemberKind(kind)
          ? { at, kind, target, forMs }
          : { at, kind, target, forMs };
    faults.push(fault);
    freeAt.set(target, freeAfter(fault, isOfMember ? RECOVERY_MS : 0));
  }
  return faults;
}

function isMemberKind(kind: Fault['kind']): kind is MemberFaultKind {
  return (MEMBER_KINDS as readonly Fault['kind'][]).includes(kind);
}
