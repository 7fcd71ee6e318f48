import type { z } from 'zod';
import { ApiError, detailOf, type ProblemLine } from '#api/errors/errors.js';
import { knownFields, nearest } from '#policy/document/known-fields.js';

/**
 * Validates the path or query parameters of a request. Returns an error that contains one problem for each
 * invalid parameter.
 */
export function readParameters(
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
