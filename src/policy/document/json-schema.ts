import { z } from 'zod';
import type { Form } from '#contracts/policy/policy-document.js';
import { envelopeSchema, policySchema } from './policy-schema.js';

/**
 * The form of the policy documents that a JSON Schema describes. `any`: the schema accepts the envelope form
 * and the singleton form (without name and mode).
 */
export type SchemaForm = Form | 'any';

/** A JSON Schema of draft 2020-12, or a subschema in it. */
export type JsonSchema = {
  readonly $id?: string;
  readonly title?: string;
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
 * Returns the JSON Schema of policy documents. `any`: a document in either form, such as a file for `weir
 * policy apply`. The schema describes only the shape of a document. The node also checks rules between
 * fields, such as "tls needs TCP".
 */
export function policyJsonSchema(form: SchemaForm): JsonSchema {
  const schemas = { singleton: policySchema, envelope: envelopeSchema, any: z.union([envelopeSchema, policySchema]) };
  return {
    $id: `urn:weir:policy:${form}:1`,
    title: 'Policy of Weir',
    ...(z.toJSONSchema(schemas[form], { io: 'input' }) as JsonSchema),
  };
}
