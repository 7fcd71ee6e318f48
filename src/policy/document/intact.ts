import type { ShapeProblem } from './shape.js';
import { valueAt } from './shape.js';

/** A document after `keepIntact` has removed values with a wrong shape. So every member may be missing. */
export type Intact<T> = T extends string | number | boolean
  ? T
  : T extends readonly (infer E)[]
    ? readonly (Intact<E> | undefined)[]
    : { readonly [K in keyof T]?: Intact<T[K]> | undefined };

/**
 * Objects from which `keepIntact` removed a member, or that lack a required member. Validation must not
 * report this member as missing again.
 */
export type Damaged = WeakSet<object>;

/**
 * Removes from a document, in place, every value that has the wrong shape. So validation can check the rest
 * of the document in the same pass. A removed array element becomes undefined, so that the other elements
 * keep their indexes.
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
