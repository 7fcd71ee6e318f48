import type { z } from 'zod';
import type { ProblemCode } from '#contracts/policy/policy-problem.js';
import type { Path } from '#policy/model/pointer.js';
import { knownFields, nearest } from './known-fields.js';

/**
 * A value that differs from the schema. `path` ends at the wrong value, or at the missing or unknown field.
 */
export type ShapeProblem = { readonly path: Path; readonly code: ProblemCode; readonly message: string };

type Issue = z.core.$ZodIssue;

/** Returns the differences between a value and a schema, each with a message for the user. */
export function shapeProblems(schema: z.ZodType, value: unknown): ShapeProblem[] {
  const parsed = schema.safeParse(value);
  if (parsed.success) return [];
  const hint = hints(schema);
  return parsed.error.issues.flatMap((issue) => describe(issue, value, [], hint));
}

const REQUIRED = { code: 'required', message: 'This field is required.' } as const;

/**
 * The maximum number of hints to similar field names in one document. Each search for a similar name is slow.
 */
const MAX_HINTS = 100;
type Hint = (path: Path, key: string) => string;

function hints(schema: z.ZodType): Hint {
  let left = MAX_HINTS;
  return (path, key) => {
    if (left-- <= 0) return '';
    const meant = nearest(key, knownFields(schema, path));
    return meant === undefined ? '' : ` (did you mean ${JSON.stringify(meant)}?)`;
  };
}

/** Returns the value at a path. Ignores inherited properties, so a path cannot reach `Object.prototype`. */
function valueAt(root: unknown, path: Path): unknown {
  let value = root;
  for (const step of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, step)) return undefined;
    value = (value as Record<string | number, unknown>)[step];
  }
  return value;
}

function describe(issue: Issue, root: unknown, base: Path, hint: Hint): ShapeProblem[] {
  const path: Path = [...base, ...(issue.path as (string | number)[])];
  const value = valueAt(root, path);
  switch (issue.code) {
    case 'invalid_type':
      if (value === undefined) return [{ path, ...REQUIRED }];
      return [{ path, code: 'invalid_type', message: `Must be ${wanted(issue.expected)}, not ${jsonType(value)}.` }];
    case 'unrecognized_keys':
      return issue.keys.map((key) => ({
        path: [...path, key],
        code: 'unknown_field',
        message: `There is no field ${JSON.stringify(key)} here${hint(path, key)}.`,
      }));
    case 'invalid_value': {
      if (value === undefined) return [{ path, ...REQUIRED }];
      const words = issue.values.map((word) => JSON.stringify(word)).join(' or ');
      return [{ path, code: 'invalid_value', message: `Must be ${words}.` }];
    }
    case 'too_small':
      return [{ path, code: 'out_of_range', message: `Must be at least ${issue.minimum}.` }];
    case 'too_big':
      return [{ path, code: 'out_of_range', message: `Must be at most ${issue.maximum}.` }];
    case 'invalid_union':
      if (value === undefined) return [{ path, ...REQUIRED }];
      return union(issue, value, root, path, hint);
    default:
      return [{ path, code: 'invalid_value', message: issue.message }];
  }
}

/**
 * Reports a value that conforms to no branch of a union. If one branch accepts the JSON type of the value,
 * reports the problems of that branch. Otherwise reports one problem that lists the accepted types.
 */
function union(
  issue: z.core.$ZodIssueInvalidUnion,
  value: unknown,
  root: unknown,
  path: Path,
  hint: Hint,
): ShapeProblem[] {
  const expected: string[] = [];
  for (const branch of issue.errors) {
    const mismatch = branch.find((inner) => inner.code === 'invalid_type' && inner.path.length === 0);
    if (mismatch === undefined || mismatch.code !== 'invalid_type') {
      return branch.flatMap((inner) => describe(inner, root, path, hint));
    }
    if (mismatch.expected === 'int' && typeof value === 'number') return describe(mismatch, root, path, hint);
    expected.push(mismatch.expected);
  }
  const types = [...new Set(expected.map(wanted))];
  return [{ path, code: 'invalid_type', message: `Must be ${types.join(' or ')}, not ${jsonType(value)}.` }];
}

function wanted(expected: string): string {
  switch (expected) {
    case 'object':
    case 'record':
      return 'an object';
    case 'array':
      return 'an array';
    case 'int':
    case 'number':
      return 'an integer';
    default:
      return `a ${expected}`;
  }
}

function jsonType(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  if (typeof value === 'object') return 'an object';
  if (typeof value === 'number' && !Number.isInteger(value)) return 'a fraction';
  return `a ${typeof value}`;
}

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
