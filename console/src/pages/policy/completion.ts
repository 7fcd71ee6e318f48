import type { Completion, CompletionContext, CompletionResult } from '@codemirror/autocomplete';
import type { Text } from '@codemirror/state';

type Schema = {
  readonly $ref?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
  readonly enum?: readonly unknown[];
  readonly type?: string | readonly string[];
  readonly description?: string;
};
type Schemas = Readonly<Record<string, Schema>>;

let loaded: Promise<Schemas> | undefined;

/**
 * The schemas of the node, from its OpenAPI document; loaded when a text is completed for the first time.
 */
async function schemas(): Promise<Schemas> {
  const response = await fetch('/openapi/service-v1.json');
  return ((await response.json()) as { components: { schemas: Schemas } }).components.schemas;
}

/** Completes the fields and the values of a policy, as the schema of the node describes them. */
export async function completePolicy(context: CompletionContext): Promise<CompletionResult | null> {
  const word = context.matchBefore(/[\w-]*/);
  if (word === null || (word.from === word.to && !context.explicit)) return null;
  loaded ??= schemas();
  const known = await loaded.catch(() => {
    loaded = undefined;
    return null;
  });
  if (known === null) return null;
  const { doc } = context.state;
  const { path, key } = placeIn(doc, word.from);
  const root = /^["']?policy["']?\s*:/m.test(doc.sliceString(0, Math.min(doc.length, 4_000)))
    ? 'PolicyEnvelope'
    : 'PolicyConfig';
  const parents = path.reduce(
    (found, name) => found.flatMap((schema) => membersOf(known, schema)[name] ?? []),
    [known[root] ?? {}],
  );
  const options =
    key === null
      ? parents.flatMap((schema) =>
          Object.entries(membersOf(known, schema)).map(([name, member]) => field(known, name, member)),
        )
      : parents.flatMap((schema) =>
          valuesOf(known, membersOf(known, schema)[key] ?? {}).map((value) => ({ label: value, type: 'enum' })),
        );
  const unique = [...new Map(options.map((option) => [option.label, option])).values()];
  return unique.length === 0 ? null : { from: word.from, options: unique, validFor: /^[\w-]*$/ };
}

function alternatives(known: Schemas, schema: Schema): readonly Schema[] {
  if (schema.$ref !== undefined) return alternatives(known, known[schema.$ref.split('/').at(-1) ?? ''] ?? {});
  const nested = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return nested.length === 0 ? [schema] : [schema, ...nested.flatMap((each) => alternatives(known, each))];
}

/** Returns the members that the schema defines for a map, or for the maps in a list. */
function membersOf(known: Schemas, schema: Schema): Readonly<Record<string, Schema>> {
  return Object.fromEntries(
    alternatives(known, schema).flatMap((each) =>
      Object.entries(each.items === undefined ? (each.properties ?? {}) : membersOf(known, each.items)),
    ),
  );
}

function valuesOf(known: Schemas, schema: Schema): readonly string[] {
  return alternatives(known, schema).flatMap((each) =>
    each.items === undefined
      ? each.type === 'boolean'
        ? ['true', 'false']
        : (each.enum ?? []).map(String)
      : valuesOf(known, each.items),
  );
}

function field(known: Schemas, name: string, schema: Schema): Completion {
  const all = alternatives(known, schema);
  const type = all.find((each) => each.type !== undefined)?.type;
  const detail = Array.isArray(type) ? type.join(' or ') : String(type ?? '');
  const info = schema.description ?? all.find((each) => each.description !== undefined)?.description;
  return { label: name, apply: `${name}: `, detail, ...(info === undefined ? {} : { info }) };
}

type PlaceInText = {
  /** The keys of the maps around the cursor, from the outermost one. */
  readonly path: readonly string[];
  /** The key whose value is at the cursor; null if a key is at the cursor. */
  readonly key: string | null;
};

const KEY = /^(\s*(?:-\s+)*)["']?([\w-]+)["']?\s*:/;

/**
 * Finds the keys of the maps around an offset by indentation and brackets. This also works while the text is
 * not valid YAML.
 */
function placeIn(doc: Pick<Text, 'lineAt' | 'line'>, offset: number): PlaceInText {
  const line = doc.lineAt(offset);
  const before = line.text.slice(0, offset - line.from);
  const inLine = keysInLine(before);
  const path: string[] = [];
  const lead = /^(\s*)((?:-\s+)*)/.exec(before) ?? ['', '', ''];
  let column = (lead[0] ?? '').length;
  let dash = (lead[2] ?? '') === '' ? null : (lead[1] ?? '').length;
  for (let number = line.number - 1; number > 0 && (column > 0 || dash !== null); number--) {
    const found = KEY.exec(doc.line(number).text);
    if (found === null) continue;
    const [, indent = '', key = ''] = found;
    const at = indent.length;
    const dashAt = indent.indexOf('-');
    const limit = dash ?? column;
    // In YAML, a list may begin at the same column as its key.
    if (dash !== null ? at <= limit && dashAt === -1 : at < limit) {
      path.unshift(key);
      column = at;
      dash = dashAt === -1 ? null : dashAt;
    } else if (dash === null && at === column && dashAt !== -1) dash = dashAt;
  }
  return { path: [...path, ...inLine.path], key: inLine.key };
}

/**
 * Returns the keys of the YAML flow maps (`{…}`) that are open at the end of a part of a line, and the key
 * whose value begins there.
 */
function keysInLine(text: string): PlaceInText {
  const path: string[] = [];
  let key: string | null = null;
  for (const [token, name] of text.matchAll(/["']?([\w-]+)["']?\s*:(?=\s|$|[[{])|[{}[\],]/g)) {
    if (name !== undefined) key = name;
    else if (token === '{') {
      path.push(key ?? '');
      key = null;
    } else if (token === '}') key = path.pop() ?? null;
    else if (token === ',' && !isInList(text)) key = null;
  }
  return { path: path.filter((each) => each !== ''), key };
}

/** Whether the last open bracket of a text is that of a list. */
function isInList(text: string): boolean {
  const open: string[] = [];
  for (const sign of text) {
    if (sign === '[' || sign === '{') open.push(sign);
    else if (sign === ']' || sign === '}') open.pop();
  }
  return open.at(-1) === '[';
}
