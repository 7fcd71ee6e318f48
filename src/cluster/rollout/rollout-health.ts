/** The state of a node that enforces a roll-out first. `fault`: a sentence, or null if it is healthy. */
export type NodeHealth = { readonly node: string; readonly fault: string | null };

/** The ids of all members, and the fault that each node reports about itself. */
type Observed = { readonly members: readonly string[]; readonly reports: ReadonlyMap<string, string | null> };

/** The time in milliseconds after which a continuous fault of a node reverts the roll-out. */
const FAULT_LIMIT_MS = 10_000;

/** Returns the health of nodes. A node that is not a member, or that does not report, has a fault. */
export function healthOf(nodes: readonly string[], { members, reports }: Observed): readonly NodeHealth[] {
  return nodes.map((node) => {
    if (!members.includes(node)) return { node, fault: 'it is not a member of the cluster' };
    const fault = reports.get(node);
    return { node, fault: fault === undefined ? 'it does not report its health' : fault };
  });
}

/** Finds nodes that have had a fault without interruption for `FAULT_LIMIT_MS`. */
export class FaultTracker {
  readonly #since = new Map<string, number>();

  /** Returns a node with such a fault; null if there is none. `now` is in milliseconds, and only rises. */
  persistentFault(nodes: readonly NodeHealth[], now: number): { readonly node: string; readonly fault: string } | null {
    for (const { node, fault } of nodes) {
      if (fault === null) {
        this.#since.delete(node);
        continue;
      }
      const since = this.#since.get(node) ?? now;
      this.#since.set(node, since);
      if (now - since >= FAULT_LIMIT_MS) return { node, fault };
    }
    return null;
  }
}
