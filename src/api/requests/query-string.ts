/** The value of a query parameter. A parameter without `=`, as in `?dry_run`, is true. */
export type QueryValue = string | true;

export function parametersIn(target: string): readonly (readonly [name: string, value: QueryValue])[] {
  const start = target.indexOf('?');
  return start === -1 ? [] : pairsOf(target.slice(start + 1));
}

/** Parses a query string. The value of a repeated parameter is an array. */
export function parseQuery(text: string): Record<string, QueryValue | QueryValue[]> {
  const values = new Map<string, QueryValue[]>();
  for (const [name, value] of pairsOf(text)) values.set(name, [...(values.get(name) ?? []), value]);
  return Object.fromEntries(
    [...values].map(([name, all]) => [name, all.length > 1 ? all : (all[0] as QueryValue)] as const),
  );
}

/** Returns the query parameters of a request, for the same query to other nodes. */
export function queryOf({ url = '' }: { readonly url?: string | undefined }): URLSearchParams {
  return new URLSearchParams(parametersIn(url).map(([name, value]) => [name, String(value)] as [string, string]));
}

function pairsOf(text: string): [name: string, value: QueryValue][] {
  return text
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair) => {
      // `URLSearchParams` removes a `?` at the start of its text.
      const [[name, value] = ['', '']] = new URLSearchParams(`&${pair}`);
      return [name, pair.includes('=') ? value : true];
    });
}
