import type { Problem } from '#contracts/policy-problem.js';
import { type ListSpans, Scanner, type Span } from './json-scanner.js';

export type ParsedJson =
  | {
      readonly ok: true;
      readonly value: unknown;
      readonly bytes: Uint8Array;
      readonly members: ReadonlyMap<string, Span>;
      /** Undefined if the document has no such list. */
      readonly list: ListSpans | undefined;
    }
  | { readonly ok: false; readonly problems: readonly Problem[] };

/**
 * Parses JSON of RFC 8259 with the strictness of I-JSON: valid UTF-8, no duplicate key in an object, no lone
 * surrogate, nested at most 32 deep (D1). `members` has the positions of the values of the outermost object,
 * and `list` the position of the list at `path`.
 */
export function parseStrictJson(input: Uint8Array | string, path: readonly string[] = []): ParsedJson {
  const bytes = typeof input === 'string' ? new TextEncoder().encode(input) : input;
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return refused({ pointer: '', code: 'invalid_utf8', message: 'The body is not valid UTF-8.' });
  }
  const scanner = new Scanner(bytes, path);
  const fault = scanner.scan();
  if (fault !== undefined) return refused(fault);
  if (scanner.duplicates.length > 0) return { ok: false, problems: scanner.duplicates };
  const { members, list } = scanner;
  return { ok: true, value: JSON.parse(text), bytes, members, list };
}

function refused(problem: Problem): ParsedJson {
  return { ok: false, problems: [problem] };
}
