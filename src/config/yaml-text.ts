import {
  type Document,
  type DocumentOptions,
  isMap,
  isNode,
  isScalar,
  isSeq,
  Lexer,
  type ParsedNode,
  type ParseOptions,
  Parser,
  parseDocument,
  type SchemaOptions,
  YAMLParseError,
} from 'yaml';

/** The maximum depth of lists and maps in a file that an operator writes. */
const MAX_DEPTH = 100;
const TOO_DEEP = `lists and maps are nested deeper than ${MAX_DEPTH}`;

type Options = ParseOptions & DocumentOptions & SchemaOptions;

/**
 * Parses a YAML text. Returns an empty document with one error if the nesting is deeper than `MAX_DEPTH`,
 * because the recursive parser of the package `yaml` would overflow the stack.
 */
export function parseYaml(text: string, options: Options = {}): Document.Parsed<ParsedNode> {
  const deep = tooDeepAt(text);
  if (deep === undefined) return parseDocument(text, options);
  const document = parseDocument('', options);
  for (let end = text.indexOf('\n'); end !== -1 && end < deep; end = text.indexOf('\n', end + 1)) {
    options.lineCounter?.addNewLine(end + 1);
  }
  document.errors.push(new YAMLParseError([deep, deep + 1], 'BAD_COLLECTION_TYPE', TOO_DEEP));
  return document;
}

/** Returns the offset at which the nesting first exceeds `MAX_DEPTH`, or undefined if it never does. */
function tooDeepAt(text: string): number | undefined {
  const parser = new Parser();
  for (const lexeme of new Lexer().lex(text)) {
    for (const _ of parser.next(lexeme));
    if (parser.stack.length > MAX_DEPTH) return parser.offset;
  }
  return undefined;
}

/** Returns an error text if a JSON value is nested deeper than `MAX_DEPTH`, otherwise undefined. */
export function nestingFault(value: unknown): string | undefined {
  return isDeeper(value, MAX_DEPTH) ? TOO_DEEP : undefined;
}

function isDeeper(value: unknown, left: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return left === 0 || Object.values(value).some((member) => isDeeper(member, left - 1));
}

/**
 * Returns the character offset of the value at a path in a YAML document. Returns the offset of the key if
 * `what` is 'key' or the value is not a scalar. Returns undefined if the path does not exist.
 */
export function offsetOf(
  contents: unknown,
  path: readonly PropertyKey[],
  what: 'value' | 'key' = 'value',
): number | undefined {
  let node = contents;
  let offset: number | undefined;
  for (const key of path) {
    if (isMap(node)) {
      const pair = node.items.find((item) => isScalar(item.key) && item.key.value === key);
      if (pair === undefined) return undefined;
      const keyOffset = isScalar(pair.key) ? pair.key.range?.[0] : undefined;
      node = pair.value;
      offset = what === 'value' && isScalar(node) && node.value !== null ? node.range?.[0] : keyOffset;
    } else if (isSeq(node)) {
      node = node.items[Number(key)];
      offset = isNode(node) ? (node.range?.[0] ?? offset) : undefined;
    } else return undefined;
  }
  return offset;
}
