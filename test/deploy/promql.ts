/**
 * The result of a partial PromQL parser: the selectors with their matchers, the functions, and the labels of
 * `by`, `without`, `on` and `ignoring`. The selectors and labels determine which series an expression reads.
 * The parser ignores types, the number of arguments, and operator precedence.
 */
export type Query = {
  readonly selectors: readonly { readonly metric: string; readonly matchers: readonly Matcher[] }[];
  readonly functions: readonly string[];
  readonly groupings: readonly string[];
};
type Matcher = { readonly label: string; readonly operator: string; readonly value: string };

const TOKEN = /\s*(?:("(?:[^"\\]|\\.)*")|(\$?[a-zA-Z_:][\w:]*)|(\d[\w.]*)|(=~|!~|!=|==|>=|<=|[-+*/%^(){}[\],=<>]))/y;
const GROUPING = new Set(['by', 'without', 'on', 'ignoring', 'group_left', 'group_right']);
const OPERATORS = new Set(['and', 'or', 'unless', 'bool', 'offset']);
const CLOSING: Readonly<Record<string, string>> = { '(': ')', '{': '}', '[': ']' };

/**
 * Parses a PromQL expression. Throws a SyntaxError for a character that PromQL does not have, for unbalanced
 * brackets, and for a malformed matcher.
 */
export function readQuery(text: string): Query {
  const tokens = tokensOf(text);
  checkBrackets(tokens);
  const selectors: { metric: string; matchers: Matcher[] }[] = [];
  const functions: string[] = [];
  const groupings: string[] = [];
  for (let at = 0; at < tokens.length; at++) {
    const token = tokens[at] ?? '';
    if (token === '[') at = tokens.indexOf(']', at);
    else if (GROUPING.has(token)) {
      const end = tokens.indexOf(')', at);
      groupings.push(...tokens.slice(at + 2, end).filter((word) => word !== ','));
      at = end;
    } else if (/^[a-zA-Z_:]/.test(token) && !OPERATORS.has(token)) {
      if (tokens[at + 1] === '(' || GROUPING.has(tokens[at + 1] ?? '')) functions.push(token);
      else if (tokens[at + 1] === '{') {
        const end = tokens.indexOf('}', at);
        selectors.push({ metric: token, matchers: matchersOf(tokens.slice(at + 2, end)) });
        at = end;
      } else selectors.push({ metric: token, matchers: [] });
    }
  }
  return { selectors, functions, groupings };
}

function tokensOf(text: string): string[] {
  const tokens: string[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const from = TOKEN.lastIndex;
    const found = TOKEN.exec(text);
    if (found === null) throw new SyntaxError(`not PromQL at ${from}: ${text.slice(from)}`);
    tokens.push(found[0].trim());
  }
  return tokens;
}

function checkBrackets(tokens: readonly string[]): void {
  const open: string[] = [];
  for (const token of tokens) {
    const closing = CLOSING[token];
    if (closing !== undefined) open.push(closing);
    else if (Object.values(CLOSING).includes(token) && open.pop() !== token)
      throw new SyntaxError(`a ${token} that nothing opened`);
  }
  if (open.length > 0) throw new SyntaxError(`no ${open.join(' ')}`);
}

function matchersOf(tokens: readonly string[]): Matcher[] {
  const matchers: Matcher[] = [];
  for (let at = 0; at < tokens.length; at += 4) {
    const [label = '', operator = '', value = ''] = tokens.slice(at, at + 3);
    if (!/^\w+$/.test(label) || !/^(=~?|!=|!~)$/.test(operator) || !value.startsWith('"'))
      throw new SyntaxError(`no matcher: ${tokens.slice(at, at + 3).join(' ')}`);
    matchers.push({ label, operator, value: value.slice(1, -1) });
  }
  return matchers;
}
