import type { validatorCompiler } from 'fastify-type-provider-zod';
import type { z } from 'zod';
import { ApiError, detailOf, type ProblemLine } from '#api/errors/errors.js';
import { parseStrictJson } from '#policy/document/json.js';
import { knownFields, nearest } from '#policy/document/known-fields.js';
import { shapeProblems } from '#policy/document/shape.js';
import { pointerOf } from '#policy/model/pointer.js';

type Part = Parameters<typeof validatorCompiler>[0];
type RoutePart = Pick<Part, 'method' | 'url'> & { readonly schema: unknown; readonly httpPart?: string | undefined };
type Reader = ReturnType<typeof validatorCompiler>;

/**
 * Parses a request body from bytes as strict JSON (D1), and validates the body with the schema of the route.
 * All routes use this function, unless they set another `validatorCompiler`.
 */
export function readBody(route: RoutePart): Reader {
  const schema = route.schema as z.ZodType;
  return route.httpPart === 'body' ? reader(() => schema) : parameterReader(route);
}

/**
 * Like `readBody`, for a route that accepts several kinds of bodies. `meant` returns the schema for a given
 * body.
 */
export function readBodyAs(meant: (body: unknown) => z.ZodType): (route: RoutePart) => Reader {
  return (route) => (route.httpPart === 'body' ? reader(meant) : parameterReader(route));
}

/** Like `readBody`, but reads an empty body as `{}`. */
export function readOptionalBody(route: RoutePart): Reader {
  const read = readBody(route);
  if (route.httpPart !== 'body') return read;
  return (bytes: unknown) => read(isEmpty(bytes as Uint8Array | null) ? Buffer.from('{}') : bytes);
}

/** Keeps the bytes of the body, because the policy thread parses them later. Refuses an empty body. */
export function keepBody(route: RoutePart): Reader {
  if (route.httpPart !== 'body') return parameterReader(route);
  return (bytes: unknown) => (isEmpty(bytes as Uint8Array | null) ? { error: emptyBody() } : { value: bytes });
}

function parameterReader({ schema, httpPart }: RoutePart): Reader {
  return (values: unknown) => readParameters(schema as z.ZodType, values, httpPart === 'params' ? 'path' : 'query');
}

function reader(meant: (body: unknown) => z.ZodType): Reader {
  return (bytes: unknown) => {
    try {
      return { value: parseBody(bytes as Uint8Array | null, meant) };
    } catch (error) {
      if (error instanceof ApiError) return { error };
      throw error;
    }
  };
}

function parseBody(bytes: Uint8Array | null, meant: (body: unknown) => z.ZodType): unknown {
  if (isEmpty(bytes)) throw emptyBody();
  const parsed = parseStrictJson(bytes);
  if (!parsed.ok) throw new ApiError('invalid_body', detailOf(parsed.problems), parsed.problems);
  const forbidden = prototypeKeys(parsed.value, []);
  if (forbidden.length > 0) throw new ApiError('invalid_body', detailOf(forbidden), forbidden);
  const schema = meant(parsed.value);
  const read = schema.safeParse(parsed.value);
  if (read.success) return read.data;
  const problems = shapeProblems(schema, parsed.value).map(({ path, ...told }) => ({
    pointer: pointerOf(path),
    ...told,
  }));
  throw new ApiError('invalid_request', detailOf(problems), problems);
}

const isEmpty = (bytes: Uint8Array | null): bytes is null => bytes === null || bytes.length === 0;
const emptyBody = () =>
  new ApiError('invalid_body', 'The body is empty; JSON is required.', [
    { pointer: '', code: 'required', message: 'The body is empty; JSON is required.' },
  ]);

/**
 * Returns a problem for each key `__proto__` in a body. The validator zod would ignore such a key, but a
 * request must not be accepted with keys that the node ignores.
 */
function prototypeKeys(value: unknown, path: readonly (string | number)[]): ProblemLine[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, member]: [string, unknown]) => {
    const here = [...path, Array.isArray(value) ? Number(key) : key];
    if (key !== '__proto__') return prototypeKeys(member, here);
    return [{ pointer: pointerOf(here), code: 'invalid_key', message: 'The key __proto__ is not allowed.' }];
  });
}

/** Returns an error that contains one problem for each invalid path or query parameter. */
function readParameters(
  schema: z.ZodType,
  values: unknown,
  part: 'path' | 'query',
): { value: unknown } | { error: Error } {
  const read = schema.safeParse(values);
  if (read.success) return { value: read.data };
  const problems = read.error.issues.flatMap((issue) => problemsOf(issue, schema, values, part === 'path' ? '/' : '?'));
  return { error: new ApiError(part === 'path' ? 'invalid_url' : 'invalid_query', detailOf(problems), problems) };
}

function problemsOf(issue: z.core.$ZodIssue, schema: z.ZodType, values: unknown, mark: string): ProblemLine[] {
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => {
      const meant = nearest(key, knownFields(schema, []));
      const hint = meant === undefined ? '' : ` (did you mean ${JSON.stringify(meant)}?)`;
      const message = `There is no parameter ${JSON.stringify(key)} here${hint}.`;
      return { pointer: `${mark}${key}`, code: 'unknown_parameter', message };
    });
  }
  const name = String(issue.path[0]);
  const taken = issue.code === 'invalid_union' || issue.code === 'custom';
  const repeated = Array.isArray((values as Record<string, unknown>)[name]) && !taken;
  const hasNoValue = (values as Record<string, unknown>)[name] === true;
  const message = hasNoValue
    ? 'This parameter must have a value.'
    : repeated
      ? 'This parameter must be given once only.'
      : issue.message;
  return [{ pointer: `${mark}${name}`, code: 'invalid_parameter', message }];
}
