import { itemAt, u32At } from '#arrays/read.js';
import type { Rule } from '#contracts/policy-model.js';

/**
 * `destinationOrder` sorts only lists with at least this many rules. The data of a shorter list fits into the
 * CPU caches, so its order has no effect on speed.
 */
const WORTH_IT = 1_024;

const known = new WeakMap<readonly Rule[], Uint32Array>();

/**
 * Returns a function that maps a position in the visiting order (0, 1, …) to a rule index. Rules of a list
 * with `WORTH_IT` or more rules are visited by ascending address of their first destination. Rules of a
 * shorter list are visited in list order.
 */
export function destinationOrder(rules: readonly Rule[]): (turn: number) => number {
  if (rules.length < WORTH_IT) return (turn) => turn;
  const order = known.get(rules) ?? sorted(rules);
  known.set(rules, order);
  return (turn) => u32At(order, turn);
}

function sorted(rules: readonly Rule[]): Uint32Array {
  const keys = new Float64Array(rules.length);
  for (let place = 0; place < rules.length; place++) {
    keys[place] = (itemAt(rules, place).destinations[0]?.address ?? 0) * rules.length + place;
  }
  return Uint32Array.from(keys.sort(), (key) => key % rules.length);
}
