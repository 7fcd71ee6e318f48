import type { CheckName } from '#statecharts/readiness.js';
import type { Condition } from './readiness.js';

/** When the state of each check was entered; nothing else about it is kept. */
export type StateTimes = {
  note(conditions: readonly Condition[]): void;
  /** ISO 8601, UTC. */
  since(name: CheckName): string;
};

export function createStateTimes(now: () => Date): StateTimes {
  const began = now().toISOString();
  const entered = new Map<CheckName, { readonly state: string; readonly at: string }>();
  return {
    note(conditions) {
      for (const { name, state } of conditions) {
        if (entered.get(name)?.state !== state) entered.set(name, { state, at: now().toISOString() });
      }
    },
    since: (name) => entered.get(name)?.at ?? began,
  };
}
