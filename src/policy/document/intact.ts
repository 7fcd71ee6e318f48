import type { ShapeProblem } from './shape.js';
import { valueAt } from './shape.js';

/** A document of which parts may be missing because they had the wrong shape and were removed. */
export type Intact<T> = T extends string | number | boolean
  ? T
  : T extends readonly (infer E)[]
    ? readonly (Intact<E> | undefined)[]
    : { readonly [K in keyof T]?: Intact<T[K]> | undefined };

/** Objects from which a part was removed. Do not report that part as missing. */
export type Damaged = WeakSet<object>;

/**
 * Removes every value that has the wrong shape from a document, in place, so that the rest can be validated
 * in the same pass. Elements of arrays become undefined, so that the other elements keep their index.
 */
export function keepIntact(root: unknown, problems: readonly ShapeProblem[]): Damaged {
  const damaged: Damaged = new WeakSet();
  for (const { path, code } of problems) {
    const step = path.at(-1);
    const parent = valueAt(root, path.slice(0, -1));
    if (step === undefined || typeof parent !== 'object' || parent === null) continue;
    damaged.add(parent);
    if (code === 'required') continue;
    if (Array.isArray(parent)) parent[Number(step)] = undefined;
    else delete (parent as Record<string, unknown>)[step];
  }
  return damaged;
}
