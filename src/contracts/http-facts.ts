/** The facts about an HTTP request that rules match. All versions of HTTP have this form. */
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
 * Header fields in the order of arrival. Hop-by-hop fields are removed, because the service plane does not
 * forward them.
 */
export type Headers = readonly Header[];

/**
 * A header field. `name` is in lower case. `sent` is the name with the case that the sender used, if the
 * version of HTTP preserves case.
 */
export type Header = readonly [name: string, value: string, sent?: string];
