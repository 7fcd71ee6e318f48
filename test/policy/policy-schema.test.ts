import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { envelopeSchema, policySchema, storedPolicySchema } from '#policy/document/policy-schema.js';

type JsonSchema = { [key: string]: unknown; $defs: Record<string, JsonSchema>; properties: Record<string, JsonSchema> };

function definitions(schema: z.ZodType): Record<string, JsonSchema> {
  return (z.toJSONSchema(schema) as JsonSchema).$defs;
}

describe('the policy schemas', () => {
  it('the policy schemas give every component of the generated JSON Schema a name', () => {
    const matchers = [
      'Action',
      'HeaderMatch',
      'HttpMatchConfig',
      'HttpRequestPolicyConfig',
      'HttpResponsePolicyConfig',
      'KubernetesSource',
      'LabelExpression',
      'Mode',
      'NameMatch',
      'PortSpec',
      'Priority',
      'ProtoValue',
      'RuleConfig',
      'RuleMatchConfig',
      'SourcesConfig',
      'TlsMatchConfig',
      'TlsNameMatch',
    ];
    const names = (schema: z.ZodType) => Object.keys(definitions(schema)).sort();
    expect(names(policySchema)).toEqual([...matchers, 'PolicyConfig', 'SourceGroupConfig'].sort());
    expect(names(storedPolicySchema)).toEqual([...matchers, 'StoredPolicyConfig', 'StoredSourceGroupConfig'].sort());
    expect(names(envelopeSchema)).toEqual(
      [...matchers, 'EnvelopeMode', 'EnvelopePolicyConfig', 'EnvelopeSourceGroupConfig', 'PolicyEnvelope'].sort(),
    );
  });

  it('the policy schemas have a description and examples for every component', () => {
    for (const [name, definition] of Object.entries({ ...definitions(policySchema), ...definitions(envelopeSchema) })) {
      expect([name, typeof definition.description, Array.isArray(definition.examples)]).toEqual([name, 'string', true]);
    }
  });

  it('the policy schemas accept the examples that the schemas contain', () => {
    for (const schema of [policySchema, envelopeSchema, storedPolicySchema]) {
      for (const example of (schema.meta()?.examples ?? []) as unknown[]) {
        expect(schema.safeParse(example)).toMatchObject({ success: true });
      }
    }
  });

  it('the policy schemas contain the minimum and maximum of every numeric field', () => {
    const all = definitions(policySchema);
    const bounds = (schema: JsonSchema | undefined) => [schema?.minimum, schema?.maximum];
    const branch = (name: string, type: string) =>
      (all[name]?.anyOf as JsonSchema[] | undefined)?.find((candidate) => candidate.type === type);
    expect({
      priority: bounds(all.Priority),
      port: bounds(branch('PortSpec', 'integer')),
      protocol: bounds(branch('ProtoValue', 'integer')),
      types: bounds(all.RuleMatchConfig?.properties.icmp_types?.items as JsonSchema),
      codes: bounds(all.RuleMatchConfig?.properties.icmp_codes?.items as JsonSchema),
    }).toEqual({ priority: [0, 4294967295], port: [0, 65535], protocol: [0, 255], types: [0, 255], codes: [0, 255] });
  });

  it('the policy schemas reject unknown fields in every object that has fixed fields', () => {
    const open: string[] = [];
    const visit = (node: unknown, at: string): void => {
      if (typeof node !== 'object' || node === null) return;
      const schema = node as JsonSchema;
      if (schema.properties !== undefined && schema.additionalProperties !== false) open.push(at);
      for (const [key, child] of Object.entries(schema)) visit(child, `${at}/${key}`);
    };
    visit(definitions(policySchema), '');
    visit(definitions(envelopeSchema), '');
    expect(open).toEqual([]);
  });
});
