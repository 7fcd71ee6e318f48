/**
 * The parsed text of a filter: the parameters by which the node filters, and the words by which the page
 * filters.
 */
export type Filter = {
  /** Parameters of the API, such as `port` → `443`. */
  readonly parameters: readonly (readonly [name: string, value: string])[];
  /** Words that a row must contain. */
  readonly words: readonly string[];
  /** Words that a row must not contain. */
  readonly without: readonly string[];
};

/**
 * The parameters by which the node filters wiretap messages. The command `weir wiretap` has options of the
 * same names.
 */
export const LIVE_PARAMETERS = ['src', 'dst', 'port', 'proto', 'hostname', 'group', 'rule', 'verdict', 'type'] as const;
/** The parameters by which the node filters its open flows. */
export const FLOW_PARAMETERS = [
  ...['src', 'dst', 'port', 'src_port', 'dst_port', 'proto', 'group', 'rule', 'verdict'],
  ...['state', 'suspended', 'foreign', 'current', 'min_bytes'],
] as const;
/**
 * The parameters by which the node filters the flows of the last days. `port` means the destination port
 * there.
 */
export const SEEN_PARAMETERS = ['src', 'dst', 'port', 'dst_port', 'proto', 'hostname', 'verdict'] as const;

/**
 * Parses a filter, whose words are separated by spaces. `name:value` is a parameter if `names` contains the
 * name; `-word` excludes rows with the word. A row must match one of several values of the same parameter.
 */
export function readFilter(text: string, names: readonly string[]): Filter {
  const parameters: [string, string][] = [];
  const words: string[] = [];
  const without: string[] = [];
  for (const token of text.split(/\s+/).filter((each) => each !== '' && each !== '-')) {
    const [, name = '', value = ''] = /^([a-z_]+):(.+)$/.exec(token) ?? [];
    if (names.includes(name)) for (const each of value.split(',').filter(Boolean)) parameters.push([name, each]);
    else if (token.startsWith('-')) without.push(token.slice(1).toLowerCase());
    else words.push(token.toLowerCase());
  }
  return { parameters, words, without };
}

/**
 * Returns whether a row matches the words of a filter. `text`: the row in lower case. A word of digits
 * matches only a whole number.
 */
export function passes(text: string, { words, without }: Filter): boolean {
  return words.every((word) => has(text, word)) && !without.some((word) => has(text, word));
}

const wholeNumbers = new Map<string, RegExp>();

function has(text: string, word: string): boolean {
  if (!/^\d+$/.test(word)) return text.includes(word);
  let whole = wholeNumbers.get(word);
  if (whole === undefined) {
    whole = new RegExp(`(?<![\\d.])${word}(?![\\d.])`);
    if (wholeNumbers.size > 100) wholeNumbers.clear();
    wholeNumbers.set(word, whole);
  }
  return whole.test(text);
}

/** Adds a word such as `dst:10.2.0.2` to the text of a filter, or removes it if the text contains it. */
export function toggled(text: string, token: string): string {
  const tokens = text.split(/\s+/).filter(Boolean);
  return (tokens.includes(token) ? tokens.filter((each) => each !== token) : [...tokens, token]).join(' ');
}

/** Sets or removes the parameter `name` in the text of a filter. */
export function withParameter(text: string, name: string, value: string): string {
  const others = text.split(/\s+/).filter((token) => token !== '' && !token.startsWith(`${name}:`));
  return [...others, ...(value === '' ? [] : [`${name}:${value}`])].join(' ');
}

/** Returns parameters as a query, for example `port=443&port=80`. */
export const queryOf = (parameters: Filter['parameters']): string =>
  new URLSearchParams(parameters.map(([name, value]) => [name, value])).toString();
