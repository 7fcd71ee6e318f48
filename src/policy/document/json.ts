import type { Problem } from '#contracts/policy/policy-problem.js';
import { type ListSpans, Scanner, type Span } from './json-scanner.js';

export type ParsedJson =
  | {
      readonly ok: true;
      readonly value: unknown;
      readonly bytes: Uint8Array;
      readonly members: ReadonlyMap<string, Span>;
      /** The positions of the list at `path` and of its items; undefined if the document has no such list. */
      readonly list: ListSpans | undefined;
    }
  | { readonly ok: false; readonly problems: readonly Problem[] };

/**
 * Parses JSON (RFC 8259, D1). Requires valid UTF-8, unique keys in each object, no lone surrogate, and a
 * nesting depth of at most 32. `members` has the positions of the values in the outermost object. `list` has
 * the positions of the list at `path`.
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
