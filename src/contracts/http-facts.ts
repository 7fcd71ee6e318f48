/** A request as a rule matches it, the same for every version of HTTP. */
export type RequestFacts = {
  /** As sent; methods are case-sensitive (RFC 9110, 9.1). */
  readonly method: string;
  /** Lower case, without the port and the last dot. */
  readonly host: string;
  /** As sent: from the first `/` to the `?`. */
  readonly path: string;
  /** As sent, without the `?`; null if there is none. */
  readonly query: string | null;
  readonly headers: Headers;
};

export type ResponseFacts = { readonly headers: Headers };

/** In the order of arrival, without hop-by-hop headers: exactly the headers that are forwarded. */
export type Headers = readonly Header[];

/** The name in lower case. `sent`: the name as written, if the version of HTTP allows upper case. */
export type Header = readonly [name: string, value: string, sent?: string];
