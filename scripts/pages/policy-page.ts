import { type JsonSchema, policyJsonSchema } from '#policy/document/json-schema.js';

/**
 * Fills the generated sections of `docs/policy.md`. `<!-- fields NAME -->` receives the list of fields of the
 * JSON Schema definition NAME, `<!-- example FILE -->` receives the text of FILE. Each section ends at `<!--
 * end -->`.
 */
export function policyPage(page: string, exampleOf: (file: string) => string): string {
  const definitions = policyJsonSchema('any').$defs ?? {};
  return page.replace(PART, (_, begin: string, kind: string, name: string, end: string) => {
    if (kind === 'example') return `${begin}\`\`\`yaml\n${exampleOf(name)}\`\`\`\n${end}`;
    const definition = definitions[name];
    if (definition === undefined) throw new Error(`the JSON Schema has no definition ${name}`);
    return `${begin}${fieldList(definition)}${end}`;
  });
}

const PART = /(<!-- (fields|example) (\S+) -->\n)[\s\S]*?(<!-- end -->)/g;

function fieldList(definition: JsonSchema): string {
  const lines = rowsOf(definition, '').map(({ field, type, required, description }) => {
    return `- \`${field}\` (${type}${required ? ', required' : ''}): ${description}\n`;
  });
  return `\n${lines.join('')}\n`;
}

type Row = { readonly field: string; readonly type: string; readonly required: boolean; readonly description: string };

/**
 * Returns the rows of an object. The fields of a nested object without its own definition follow as rows such
 * as `path.exact`.
 */
function rowsOf({ properties = {}, required = [] }: JsonSchema, parent: string): readonly Row[] {
  return Object.entries(properties).flatMap(([name, schema]) => {
    const field = `${parent}${name}`;
    const row = { field, type: typeOf(schema), required: required.includes(name), description: descriptionOf(schema) };
    return [row, ...rowsOf(schema, `${field}.`)];
  });
}

function typeOf({
  $ref,
  enum: words,
  anyOf,
  items,
  properties,
  additionalProperties: values,
  type = '',
}: JsonSchema): string {
  if ($ref !== undefined) return nameOf($ref);
  if (words !== undefined) return words.map((word) => `\`${word}\``).join(', ');
  if (anyOf !== undefined) return anyOf.map(typeOf).join(' or ');
  if (items !== undefined) return `list of ${typeOf(items)}`;
  if (properties === undefined && typeof values === 'object') return `map of string to ${typeOf(values)}`;
  return type;
}

function descriptionOf({ description, $ref }: JsonSchema): string {
  if (description !== undefined) return description;
  if ($ref !== undefined) return policyJsonSchema('any').$defs?.[nameOf($ref)]?.description ?? '';
  return '';
}

const nameOf = (ref: string): string => ref.slice(ref.lastIndexOf('/') + 1);
