import { z } from 'zod';
import type { Form } from '#contracts/policy-document.js';
import { envelopeSchema, policySchema } from './policy-schema.js';

/** The form of a document; `any` for either form. */
export type SchemaForm = Form | 'any';

/** A JSON Schema of draft 2020-12, or a part of one. */
export type JsonSchema = {
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, JsonSchema>>;
  readonly description?: string;
  readonly type?: string;
  readonly enum?: readonly string[];
  readonly anyOf?: readonly JsonSchema[];
  readonly items?: JsonSchema;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly additionalProperties?: JsonSchema | boolean;
  readonly required?: readonly string[];
};

/**
 * The JSON Schema of a policy document. `any`: a document of either form, such as a file for `weir policy
 * apply`. The schema describes only the shape. Rules between fields, such as "tls needs TCP", are checked by
 * the node and by a dry run.
 */
export function policyJsonSchema(form: SchemaForm): JsonSchema {
  const schemas = { singleton: policySchema, envelope: envelopeSchema, any: z.union([envelopeSchema, policySchema]) };
  return z.toJSONSchema(schemas[form], { io: 'input' }) as JsonSchema;
}
