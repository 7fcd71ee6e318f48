/** The properties of an HTTP request that rules match. They have the same form for all versions of HTTP. */
export type RequestFacts = {
  /** The method as the client sent it; methods are case-sensitive (RFC 9110, 9.1). */
  readonly method: string;
  /** The host in lower case, without the port and without a final dot. */
  readonly host: string;
  /** The path as the client sent it: from the first `/` up to the `?`, which is excluded. */
  readonly path: string;
  /** The query as the client sent it, without the `?`; null if the target has no `?`. */
  readonly query: string | null;
  readonly headers: Headers;
};

export type ResponseFacts = { readonly headers: Headers };

/**
 * Header fields in the order of arrival. Hop-by-hop fields are missing, because the service plane (TLS and
 * HTTP inspection) does not forward them.
 */
export type Headers = readonly Header[];

/**
 * A header field. `name` is in lower case. `sent` is the name as the sender wrote it, if the HTTP version
 * preserves upper and lower case.
 */
export type Header = readonly [name: string, value: string, sent?: string];
