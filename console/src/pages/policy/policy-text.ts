import { Document, isMap, isNode, isScalar, isSeq, LineCounter, type ParsedNode, parseDocument } from 'yaml';
import type { Schemas } from '../../api/client.js';
import { finish, type Steps } from '../../slices.js';
import { jsonPlaces, jsonRulePlaces, type Place, pathOf } from './json-places.js';

type SyntaxProblem = Place & { readonly message: string };
export type RulePlace = Place & { readonly group: string; readonly rule: string };

/**
 * A text, parsed into a document for the API. The parser finds only syntax errors; the node checks everything
 * else.
 */
export type TextDocument = {
  /** The document; null if the text has syntax errors. */
  readonly value: Readonly<Record<string, unknown>> | null;
  readonly syntax: readonly SyntaxProblem[];
  /**
   * Returns the offsets of JSON pointers, or of their nearest existing parents. A pointer to a map has the
   * offset of its key.
   */
  places(pointers: readonly string[]): Steps<ReadonlyMap<string, Place>>;
  /** The text itself if it is JSON; otherwise null. */
  readonly json: string | null;
};

const MAX_ALIASES = 100;
const OPTIONS = { uniqueKeys: true, stringKeys: true, prettyErrors: false } as const;
/**
 * The maximum length of a text in YAML, in characters. A longer text is written as JSON with one rule per
 * line: the YAML parser blocks the page for about 2 s per million characters, and JSON takes a hundredth of
 * that.
 */
const LONGEST_YAML = 80_000;

export const isJson = (text: string): boolean => /^\s*\{/.test(text);

export function readText(text: string): TextDocument {
  if (isJson(text)) {
    try {
      return jsonDocument(text, JSON.parse(text) as Record<string, unknown>);
    } catch {
      // Use the YAML parser to find the place of the error: it can parse most of JSON too.
      if (text.length > 4 * LONGEST_YAML)
        return refused({ message: 'This is not valid JSON.', ...jsonErrorPlace(text) });
    }
  }
  return yamlDocument(text);
}

const refused = (...syntax: SyntaxProblem[]): TextDocument => ({
  value: null,
  syntax,
  json: null,
  places: (pointers) => jsonPlaces('', pointers),
});

function jsonErrorPlace(text: string): Place {
  try {
    JSON.parse(text);
  } catch (failure) {
    const position = /position (\d+)/.exec(String(failure))?.[1];
    if (position !== undefined) return { from: Number(position), to: Number(position) + 1 };
  }
  return { from: 0, to: 1 };
}

/** Makes a document from a JSON text whose parsed value is known. */
export function jsonDocument(text: string, value: Readonly<Record<string, unknown>>): TextDocument {
  return { value, syntax: [], json: text, places: (pointers) => jsonPlaces(text, pointers) };
}

function yamlDocument(text: string): TextDocument {
  let document: Document.Parsed<ParsedNode>;
  let value: unknown;
  try {
    document = parseDocument(text, { ...OPTIONS, lineCounter: new LineCounter() });
    if (document.errors.length > 0)
      return refused(
        ...document.errors.map(({ message, pos: [from, to] }) => ({ message, from, to: Math.max(to, from + 1) })),
      );
    value = document.toJS({ maxAliasCount: MAX_ALIASES }) ?? {};
  } catch (failure) {
    return refused({ message: failure instanceof Error ? failure.message : String(failure), from: 0, to: 1 });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return refused({ message: 'The text must be a map, such as "default_policy: deny".', from: 0, to: text.length });
  return {
    value: value as Record<string, unknown>,
    syntax: [],
    json: null,
    *places(pointers) {
      return new Map(
        pointers.map((pointer) => [pointer, yamlPlace(document.contents, pathOf(pointer)) ?? { from: 0, to: 0 }]),
      );
    },
  };
}

function yamlPlace(contents: unknown, path: readonly string[]): Place | undefined {
  let node = contents;
  let place: Place | undefined;
  const at = (found: unknown): Place | undefined =>
    isNode(found) && found.range ? { from: found.range[0], to: found.range[1] } : undefined;
  for (const key of path) {
    if (isMap(node)) {
      const pair = node.items.find((item) => isScalar(item.key) && item.key.value === key);
      if (pair === undefined) break;
      node = pair.value;
      place = (isScalar(node) && node.value !== null ? at(node) : undefined) ?? at(pair.key) ?? place;
    } else if (isSeq(node)) {
      const item = node.items[Number(key)];
      if (item === undefined) break;
      node = item;
      // Mark only the first key and value of a list item that is a map, not all its lines.
      const [first] = isMap(item) ? item.items : [];
      const start = at(item);
      const end = first === undefined ? undefined : at(first.value);
      place = start === undefined ? place : { from: start.from, to: Math.max(end?.to ?? start.to, start.from + 1) };
    } else break;
  }
  return place;
}

type Item = { readonly id?: unknown; readonly rules?: readonly Item[] };
const listOf = (value: unknown): readonly Item[] => (Array.isArray(value) ? (value as Item[]) : []);

/**
 * Returns the policy in a document: the member `policy` if the document has a name and a mode around it
 * (envelope), otherwise the document itself.
 */
export const policyIn = (value: Readonly<Record<string, unknown>>) =>
  ('policy' in value ? (value.policy ?? {}) : value) as Readonly<Record<string, unknown>>;

export const formOf = (value: Readonly<Record<string, unknown>>): 'envelope' | 'singleton' =>
  'policy' in value ? 'envelope' : 'singleton';

/**
 * Returns the policy of a document without the name around it (singleton form), as the node expects a draft.
 */
export function singletonOf(document: object): Schemas['PolicyConfig'] {
  const value = document as Readonly<Record<string, unknown>>;
  if (formOf(value) === 'singleton') return value;
  const policy = policyIn(value) as { source_groups?: readonly object[] };
  const mode = value.mode === 'audit' ? 'audit' : 'enforce';
  return {
    ...policy,
    source_groups: (policy.source_groups ?? []).map((group) => ({ ...group, mode })),
  } as Schemas['PolicyConfig'];
}

/** Returns the rules of a policy with their offsets, in the order of the text. */
export function* rulePlaces(document: TextDocument): Steps<RulePlace[]> {
  const { value, json } = document;
  if (value === null) return [];
  const path = formOf(value) === 'envelope' ? ['policy'] : [];
  const groups = listOf(policyIn(value).source_groups);
  const places: readonly (readonly (Place | undefined)[])[] =
    json === null ? yield* yamlRulePlaces(document, path, groups) : yield* jsonRulePlaces(json, path);
  return groups.flatMap((group, groupAt) =>
    listOf(group?.rules).flatMap((rule, ruleAt) => {
      const place = places[groupAt]?.[ruleAt];
      if (typeof group.id !== 'string' || typeof rule?.id !== 'string' || place === undefined) return [];
      return [{ group: group.id, rule: rule.id, ...place }];
    }),
  );
}

function* yamlRulePlaces(document: TextDocument, path: readonly string[], groups: readonly Item[]) {
  const pointers = groups.map((group, groupAt) =>
    listOf(group?.rules).map((_, ruleAt) => `/${[...path, 'source_groups', groupAt, 'rules', ruleAt].join('/')}`),
  );
  const places = yield* document.places(pointers.flat());
  return pointers.map((rules) => rules.map((pointer) => places.get(pointer)));
}

/**
 * Replaces JSON pointers to rules and source groups in a text by their names: "/source_groups/0/rules/4" →
 * "office / web".
 */
export function withNames(text: string, value: Readonly<Record<string, unknown>> | null): string {
  if (value === null) return text;
  const groups = listOf(policyIn(value).source_groups);
  return text.replaceAll(
    /(?:\/policy)?\/source_groups\/(\d+)(?:\/rules\/(\d+))?(?=$|[\s,.;:])/g,
    (pointer, group, rule) => {
      const item = groups[Number(group)];
      const id = rule === undefined ? undefined : listOf(item?.rules)[Number(rule)]?.id;
      if (typeof item?.id !== 'string' || (rule !== undefined && typeof id !== 'string')) return pointer;
      return rule === undefined ? item.id : `${item.id} / ${String(id)}`;
    },
  );
}

/**
 * Returns a document as YAML text, or as JSON with one rule per line if it is large. The result parses to the
 * same document.
 */
export const writeText = (value: unknown): string => finish(writeSteps(value));

export function* writeSteps(value: unknown): Steps<string> {
  const json = JSON.stringify(value);
  yield;
  if (json.length > LONGEST_YAML) return `${yield* jsonText(value, '')}\n`;
  const document = new Document(value, { aliasDuplicateObjects: false });
  foldShort(document.contents);
  return yamlText(document);
}

export const yamlText = (document: Document): string => document.toString({ lineWidth: 0 });

const LONGEST_LINE = 84;
const IS_BLOCK = new Set(['rules', 'source_groups', 'policy', 'assertions']);

/** Formats a YAML document: short lists and maps on one line, each rule and group on its own lines. */
export function foldShort(node: unknown, key = ''): void {
  if (isSeq(node) || isMap(node)) {
    const isFolded =
      key !== '' && !IS_BLOCK.has(key) && JSON.stringify(node.toJSON()).length + key.length <= LONGEST_LINE;
    if (isFolded) {
      node.flow = true;
      return;
    }
  }
  // Do not put an item of a list of maps on one line: `foldShort` is called for it without a key.
  if (isSeq(node)) for (const item of node.items) foldShort(item);
  if (isMap(node))
    for (const pair of node.items) foldShort(pair.value, isScalar(pair.key) ? String(pair.key.value) : '');
}

/** Returns a value as JSON text. A short value or a rule is on one line. */
export function* jsonText(value: unknown, indent: string): Steps<string> {
  if (typeof value !== 'object' || value === null || isRule(value)) return JSON.stringify(value);
  const flat = isSmall(value) ? JSON.stringify(value) : null;
  if (flat !== null && flat.length <= LONGEST_LINE) return flat;
  const deeper = `${indent} `;
  const lines: string[] = [];
  const isList = Array.isArray(value);
  for (const [key, member] of Object.entries(value)) {
    lines.push(`${deeper}${isList ? '' : `${JSON.stringify(key)}: `}${yield* jsonText(member, deeper)}`);
    if (lines.length % PAUSE_EVERY === 0) yield;
  }
  return isList ? `[\n${lines.join(',\n')}\n${indent}]` : `{\n${lines.join(',\n')}\n${indent}}`;
}

/** The writing can be interrupted after this number of lines of a list. */
const PAUSE_EVERY = 64;
const isRule = (item: unknown) => typeof item === 'object' && item !== null && 'match' in item;

/** Whether a value may fit on one line. This avoids the conversion of large values to text. */
function isSmall(value: object): boolean {
  let left = LONGEST_LINE / 2;
  const count = (part: unknown): boolean => {
    left--;
    if (left < 0) return false;
    return typeof part !== 'object' || part === null || Object.values(part).every(count);
  };
  return (!Array.isArray(value) || value.length < left) && count(value);
}
