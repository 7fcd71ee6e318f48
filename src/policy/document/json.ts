import type { Problem } from '#contracts/policy-problem.js';
import { type KnownItems, type ListSpans, Scanner, type Span } from './json-scanner.js';

export type ParsedJson =
  | {
      readonly ok: true;
      readonly value: unknown;
      readonly bytes: Uint8Array;
      readonly members: ReadonlyMap<string, Span>;
      /** Undefined where there is no such list. */
      readonly list: ListSpans | undefined;
    }
  | { readonly ok: false; readonly problems: readonly Problem[] };

/**
 * JSON of RFC 8259 with I-JSON's strictness: valid UTF-8, no key twice in an object, no lone surrogate, nested at
 * most 32 deep (D1). `members` tells where the values of the outermost object stand in the bytes, and `list` where the
 * list does that the keys of `path` lead to. Items of it that are `known` are not read again: null stands for each.
 */
export function parseStrictJson(
  input: Uint8Array | string,
  path: readonly string[] = [],
  known?: KnownItems,
): ParsedJson {
  const bytes = typeof input === 'string' ? new TextEncoder().encode(input) : input;
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return refused({ pointer: '', code: 'invalid_utf8', message: 'The body is not valid UTF-8.' });
  }
  const scanner = new Scanner(bytes, path, known);
  const fault = scanner.scan();
  if (fault !== undefined) return refused(fault);
  if (scanner.duplicates.length > 0) return { ok: false, problems: scanner.duplicates };
  const { skipped, members, list } = scanner;
  const value: unknown = JSON.parse(skipped.length === 0 ? text : textWithout(bytes, skipped));
  return { ok: true, value, bytes, members, list };
}

/** The text with null in the place of some spans, which are ascending. */
function textWithout(bytes: Uint8Array, spans: readonly Span[]): string {
  const shorter = new Uint8Array(spans.reduce((left, { start, end }) => left - (end - start) + 4, bytes.length));
  const stand = new TextEncoder().encode('null');
  let from = 0;
  let to = 0;
  const copy = (end: number): void => {
    shorter.set(bytes.subarray(from, end), to);
    to += end - from;
  };
  for (const { start, end } of spans) {
    copy(start);
    shorter.set(stand, to);
    to += stand.length;
    from = end;
  }
  copy(bytes.length);
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(shorter);
}

function refused(problem: Problem): ParsedJson {
  return { ok: false, problems: [problem] };
}
