/** A request as a rule sees it, whatever version of HTTP brought it. */
export type RequestFacts = {
  /** As it was sent; methods are case-sensitive (RFC 9110, 9.1). */
  readonly method: string;
  /** Lower case, without port and last dot. */
  readonly host: string;
  /** As it was sent: from the first `/` to the `?`. */
  readonly path: string;
  /** As it was sent, without the `?`; null where there is none. */
  readonly query: string | null;
  readonly headers: Headers;
};

export type ResponseFacts = { readonly headers: Headers };

/** In the order in which they came, without those of one hop: exactly what is sent on. */
export type Headers = readonly Header[];

/** The name in lower case; `sent`: as it was written, where the version of HTTP has more than lower case. */
export type Header = readonly [name: string, value: string, sent?: string];
