import { z } from 'zod';

/** Returns the schema inside the wrappers for default, optional and nullable values. */
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

/** Returns the keys of a section with their schemas. Returns an empty list if the schema is not a section. */
export function members(schema: z.core.$ZodType): readonly (readonly [string, z.core.$ZodType])[] {
  const inner = bare(schema);
  return inner instanceof z.ZodObject ? Object.entries<z.core.$ZodType>(inner.shape) : [];
}

/** Returns the schema at a path of keys, or undefined if the path does not exist. */
export function schemaAt(schema: z.core.$ZodType, keys: readonly string[]): z.core.$ZodType | undefined {
  const [first, ...rest] = keys;
  if (first === undefined) return schema;
  const member = members(schema).find(([key]) => key === first);
  return member === undefined ? undefined : schemaAt(member[1], rest);
}
