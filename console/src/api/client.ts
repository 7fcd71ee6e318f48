import createClient from 'openapi-fetch';
import type { components, paths } from '#openapi';

/** The schemas of the management API, from its OpenAPI document. */
export type Schemas = components['schemas'];
export type Problem = Schemas['Problem'];

/** The management API of the node that serves the console. The browser sends the cookie of the session. */
export const api = createClient<paths>({ baseUrl: '/', credentials: 'same-origin' });

/** A response of the node that is not a success. */
export class ApiFailure extends Error {
  override readonly name = 'ApiFailure';

  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.detail);
  }
}

/** The node sent no response: it is down, it cannot be reached, or the request took too long. */
export class NoResponse extends Error {
  override readonly name = 'NoResponse';
}

type Outcome<T> = { readonly data?: T; readonly error?: unknown; readonly response: Response };

const sessionEnds = new Set<() => void>();

/** Calls a listener whenever the node refuses a request because the session has ended. */
export function onSessionEnd(listener: () => void): void {
  sessionEnds.add(listener);
}

/** Returns the body and the headers of a successful response. Throws `ApiFailure` or `NoResponse`. */
export async function responseOf<T>(
  sent: Promise<Outcome<T>>,
): Promise<{ readonly data: T; readonly headers: Headers }> {
  let outcome: Outcome<T>;
  try {
    outcome = await sent;
  } catch (failure) {
    if (failure instanceof DOMException && failure.name === 'AbortError') throw failure;
    throw new NoResponse('the node does not respond', { cause: failure });
  }
  const { data, error, response } = outcome;
  if (!response.ok) {
    if (response.status === 401) for (const listener of sessionEnds) listener();
    throw new ApiFailure(response.status, problemOf(error, response));
  }
  return { data: data as T, headers: response.headers };
}

/** Returns the body of a successful response. Throws `ApiFailure` or `NoResponse`. */
export async function bodyOf<T>(sent: Promise<Outcome<T>>): Promise<T> {
  return (await responseOf(sent)).data;
}

function problemOf(error: unknown, { status, statusText }: Response): Problem {
  if (typeof error === 'object' && error !== null && 'detail' in error) return error as Problem;
  // Not a response of the node, for example that of a proxy in front of it.
  const detail = `the response has the status ${status} ${statusText}`;
  return { type: 'about:blank', title: detail, status, detail, error: 'unknown' };
}
