import type { Part } from '#statecharts/node.chart.js';
import type { CheckName } from '#statecharts/readiness.js';

type Name = CheckName | Part;

/** Records the time when each check and each supervised part entered its present state. */
export type StateTimes = {
  note(states: readonly { readonly name: Name; readonly state: string }[]): void;
  /** Returns the time when the check or part entered its present state, in ISO 8601, UTC. */
  since(name: Name): string;
};

export function createStateTimes(now: () => Date): StateTimes {
  const began = now().toISOString();
  const entered = new Map<Name, { readonly state: string; readonly at: string }>();
  return {
    note(states) {
      for (const { name, state } of states) {
        if (entered.get(name)?.state !== state) entered.set(name, { state, at: now().toISOString() });
      }
    },
    since: (name) => entered.get(name)?.at ?? began,
  };
}
