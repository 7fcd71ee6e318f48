type Json = { [key: string]: unknown };
type Document = { readonly components?: { readonly schemas?: Json } } & object;

const PREFIX = '#/components/schemas/';
const INPUT = /Input$/;

/**
 * Removes duplicate schemas from the OpenAPI document. The generator writes every schema twice: `XInput` for
 * requests and `X` for responses. Where both are equal, this function replaces `XInput` by `X`. Also removes
 * components without references.
 */
export function mergeComponents<D extends object>(document: D): D {
  const schemas = { ...((document as Document).components?.schemas ?? {}) };
  const same = equalPairs(schemas);
  const unused = (names: ReadonlySet<string>) => Object.keys(schemas).filter((name) => !names.has(name));
  for (const name of same) {
    const plain = name.replace(INPUT, '');
    schemas[plain] ??= schemas[name];
    delete schemas[name];
  }
  const merged = renamed({ ...document, components: { ...(document as Document).components, schemas } }, same) as D;
  const kept = (merged as Document).components?.schemas ?? {};
  for (const name of unused(reachable(merged))) delete kept[name];
  return merged;
}

/**
 * Returns the names `XInput` of schemas that are equal to their counterpart `X`. First assumes that all pairs
 * are equal, and then removes unequal pairs until the result is stable. This finds equal schemas that refer
 * to each other.
 */
function equalPairs(schemas: Json): Set<string> {
  const candidates = new Set(Object.keys(schemas).filter((name) => INPUT.test(name)));
  for (let before = -1; before !== candidates.size; ) {
    before = candidates.size;
    for (const name of candidates) {
      const plain = schemas[name.replace(INPUT, '')];
      if (plain === undefined) continue;
      const [input, output] = [schemas[name], plain].map((schema) => JSON.stringify(renamed(schema, candidates)));
      if (input !== output) candidates.delete(name);
    }
  }
  return candidates;
}

function renamed(value: unknown, names: ReadonlySet<string>): unknown {
  if (Array.isArray(value)) return value.map((item) => renamed(item, names));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, member]: [string, unknown]) => {
      if (key !== '$ref' || typeof member !== 'string') return [key, renamed(member, names)];
      const name = member.slice(PREFIX.length);
      return [key, names.has(name) ? PREFIX + name.replace(INPUT, '') : member];
    }),
  );
}

function reachable(document: Document): Set<string> {
  const schemas = document.components?.schemas ?? {};
  const found = new Set<string>();
  const visit = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    for (const [key, member] of Object.entries(value) as [string, unknown][]) {
      if (key !== '$ref' || typeof member !== 'string') visit(member);
      else if (!found.has(member.slice(PREFIX.length))) {
        found.add(member.slice(PREFIX.length));
        visit(schemas[member.slice(PREFIX.length)]);
      }
    }
  };
  visit({ ...document, components: {} });
  return found;
}
