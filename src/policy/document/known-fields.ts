import { z } from 'zod';
import { itemAt } from '#arrays/read.js';
import type { Path } from '#policy/model/pointer.js';

const MAX_KEY_LENGTH = 64;

/**
 * Returns the names of the fields that a schema defines for the object at `path`. Returns an empty list if
 * the schema defines no object at `path`.
 */
export function knownFields(schema: z.core.$ZodType, path: Path): readonly string[] {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable) {
    return knownFields(schema.def.innerType, path);
  }
  if (schema instanceof z.ZodUnion) return schema.def.options.flatMap((option) => knownFields(option, path));
  const [step, ...rest] = path;
  if (schema instanceof z.ZodArray) return step === undefined ? [] : knownFields(schema.def.element, rest);
  if (schema instanceof z.ZodRecord) return step === undefined ? [] : knownFields(schema.def.valueType, rest);
  if (!(schema instanceof z.ZodObject)) return [];
  const fields = new Map<string, z.core.$ZodType>(Object.entries(schema.def.shape));
  if (step === undefined) return [...fields.keys()];
  const member = fields.get(String(step));
  return member === undefined ? [] : knownFields(member, rest);
}

/**
 * Returns the known field that is most similar to a mistyped key; undefined if no field is similar. A field
 * is similar if at most two letters differ (one, for a key below four letters). A field that begins with a
 * key of four letters or more is similar too.
 */
export function nearest(key: string, known: readonly string[]): string | undefined {
  if (key.length > MAX_KEY_LENGTH) return undefined;
  const wanted = plain(key);
  const allowed = wanted.length < 4 ? 1 : 2;
  const near = known
    .map((field) => ({ field, distance: distance(wanted, plain(field)) }))
    .filter(({ field, distance }) => distance <= allowed || (wanted.length > 3 && plain(field).startsWith(wanted)))
    .sort((one, other) => one.distance - other.distance);
  return near[0]?.field;
}

const plain = (key: string) => key.toLowerCase().replace(/[-_ ]/g, '');

/** The Levenshtein distance: the minimum number of letters to insert, remove or replace. */
function distance(from: string, to: string): number {
  let above = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let row = 1; row <= from.length; row++) {
    const current = [row];
    for (let column = 1; column <= to.length; column++) {
      const replaced = itemAt(above, column - 1) + (from[row - 1] === to[column - 1] ? 0 : 1);
      current.push(Math.min(replaced, itemAt(above, column) + 1, itemAt(current, column - 1) + 1));
    }
    above = current;
  }
  return itemAt(above, to.length);
}
