import { validatorCompiler } from 'fastify-type-provider-zod';
import type { z } from 'zod';
import { parseStrictJson } from '#policy/json.js';
import { pointerOf } from '#policy/pointer.js';
import { shapeProblems } from '#policy/shape.js';
import { ApiError, type ProblemLine } from './errors.js';

type Part = Parameters<typeof validatorCompiler>[0];
type RoutePart = Pick<Part, 'method' | 'url'> & { readonly schema: unknown; readonly httpPart?: string | undefined };
type Reader = ReturnType<typeof validatorCompiler>;

/** Bodies arrive as bytes; everything that is not a policy is read here: strict JSON (D1), then its schema. */
export function readBody(route: RoutePart): Reader {
  const schema = route.schema as z.ZodType;
  return route.httpPart === 'body' ? reader(() => schema) : validatorCompiler(route as Part);
}

/** For a body that can be one of several: its problems are told by the schema that was meant. */
export function readBodyAs(meant: (body: unknown) => z.ZodType): (route: RoutePart) => Reader {
  return (route) => (route.httpPart === 'body' ? reader(meant) : validatorCompiler(route as Part));
}

/** A policy stays as it was received: the worker that compiles it parses it. */
export function keepBody(route: RoutePart): Reader {
  if (route.httpPart !== 'body') return validatorCompiler(route as Part);
  return (bytes: unknown) => (isEmpty(bytes as Uint8Array | null) ? { error: emptyBody() } : { value: bytes });
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
  if (!parsed.ok) throw new ApiError('invalid_body', undefined, parsed.problems);
  const forbidden = prototypeKeys(parsed.value, []);
  if (forbidden.length > 0) throw new ApiError('invalid_body', undefined, forbidden);
  const schema = meant(parsed.value);
  const read = schema.safeParse(parsed.value);
  if (read.success) return read.data;
  const problems = shapeProblems(schema, parsed.value);
  throw new ApiError(
    'invalid_request',
    undefined,
    problems.map(({ path, ...told }) => ({ pointer: pointerOf(path), ...told })),
  );
}

const isEmpty = (bytes: Uint8Array | null): bytes is null => bytes === null || bytes.length === 0;
const emptyBody = () =>
  new ApiError('invalid_body', undefined, [{ pointer: '', code: 'required', message: 'A JSON body is needed.' }]);

/** zod passes this key over instead of refusing it. */
function prototypeKeys(value: unknown, path: readonly (string | number)[]): ProblemLine[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, member]: [string, unknown]) => {
    const here = [...path, Array.isArray(value) ? Number(key) : key];
    if (key !== '__proto__') return prototypeKeys(member, here);
    return [{ pointer: pointerOf(here), code: 'invalid_key', message: 'The key __proto__ is not allowed.' }];
  });
}
