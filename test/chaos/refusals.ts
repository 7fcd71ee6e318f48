import type { Fault } from './fault-schedule.js';

/** A write. `code` is `ok`, the code of the error response, or why there was no response. Times are in ms. */
export type EndedWrite = {
  readonly node: string;
  readonly code: string;
  readonly detail: string;
  readonly from: number;
  readonly to: number;
};

/** The time during which a fault was in force, in ms. */
export type FaultSpan = { readonly fault: Fault; readonly from: number; readonly to: number };

/** Within this time, clients leave a faulty member, and etcd and the nodes elect a leader. */
const FAILOVER_MS = 3_000;
/** Within this time after its fault, a node or etcd as a whole takes part again. */
const HEALING_MS = 5_000;
/** The code of a write that failed because the policy had changed since the writer read it. */
const LOST_RACE = 'precondition_failed';

/** Returns the writes that failed while no fault of their node or of etcd explains it. */
export function unexplained(failed: readonly EndedWrite[], spans: readonly FaultSpan[]): EndedWrite[] {
  return failed.filter((write) => write.code !== LOST_RACE && !spans.some((span) => explains(span, write)));
}

function explains({ fault: { kind, target }, from, to }: FaultSpan, write: EndedWrite): boolean {
  const during = (first: number, last: number): boolean => first <= write.to && write.to <= last;
  switch (kind) {
    case 'kill_node':
    case 'stop_node':
    case 'kill_writer_at':
    case 'stop_writer_at':
      return target === write.node && during(from, to + HEALING_MS);
    case 'kill_all_members':
    case 'cut_all_responses_at':
    case 'lose_commit_at':
      return during(from, to + HEALING_MS);
    case 'collect_at':
    case 'compact':
    case 'slow_member':
      return during(from, to + FAILOVER_MS);
    default:
      // The clients change to another member soon. A member that comes back can cause an election.
      return during(from, from + FAILOVER_MS) || during(to, to + FAILOVER_MS);
  }
}
