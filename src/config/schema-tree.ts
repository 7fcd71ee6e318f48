import { z } from 'zod';

/** Returns the schema without the wrappers for defaults and optional values. */
export function bare(schema: z.core.$ZodType): z.core.$ZodType {
  if (
    schema instanceof z.ZodPrefault ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodNullable
  ) {
    return bare(schema.def.innerType);
  }
  return schema;
}

/** The keys of a section; empty for a leaf. */
export function members(schema: z.core.$ZodType): readonly (readonly [string, z.core.$ZodType])[] {
  const inner = bare(schema);
  return inner instanceof z.ZodObject ? Object.entries<z.core.$ZodType>(inner.shape) : [];
}

/** The schema at a path of keys. */
export function schemaAt(schema: z.core.$ZodType, keys: readonly string[]): z.core.$ZodType | undefined {
  const [first, ...rest] = keys;
  if (first === undefined) return schema;
  const member = members(schema).find(([key]) => key === first);
  return member === undefined ? undefined : schemaAt(member[1], rest);
}
