import { LineCounter, parseDocument } from 'yaml';
import { offsetOf } from './offset.js';

/**
 * A policy as written by an operator. A document with a member `policy` is an envelope, any other one is in
 * singleton form. A document with `form: singleton` and `policy` is a policy in singleton form, with the name
 * or id of its record.
 */
export type PolicyText = {
  readonly form: 'envelope' | 'singleton';
  /**
   * The record that a document in singleton form is written to. Null: the active one, or that of the
   * envelope.
   */
  readonly record: { readonly name: string } | { readonly id: string } | null;
  readonly value: Readonly<Record<string, unknown>>;
  /** The JSON to send: the text itself if it is JSON. */
  readonly json: string;
  /**
   * The place of a JSON pointer, or of the nearest parent. Null for a text that would take long to search.
   */
  where(pointer: string): Place | null;
};

/** Line and column start at 1. */
type Place = { readonly line: number; readonly column: number };

export class PolicyTextError extends Error {
  override readonly name = 'PolicyTextError';
  readonly code = 'policy_unreadable';
}

const MAX_ALIASES = 100;
/** Parsing a text of this size takes about 5 s. */
const LONGEST_WITH_PLACES = 2 * 1024 * 1024;

/** Reads YAML or JSON. Throws `PolicyTextError`. The node validates the policy itself. */
export function readPolicyText(text: string): PolicyText {
  const json = asJson(text);
  const value = json === undefined ? asYaml(text) : json;
  const sent = json === undefined ? JSON.stringify(value) : text;
  const where = placesOf(text);
  if (!('policy' in value)) return { form: 'singleton', record: null, value, json: sent, where };
  const record = singletonRecordOf(value);
  if (record === undefined) return { form: 'envelope', record: null, value, json: sent, where };
  const policy = (value.policy ?? {}) as Readonly<Record<string, unknown>>;
  const inside: PolicyText['where'] = (pointer) => where(`/policy${pointer}`);
  return { form: 'singleton', record, value: policy, json: JSON.stringify(policy), where: inside };
}

/** Undefined for an envelope. */
function singletonRecordOf({ form, name, id }: Readonly<Record<string, unknown>>): PolicyText['record'] | undefined {
  if (form !== 'singleton') return undefined;
  if (typeof name === 'string' && name !== '') return { name };
  if (typeof id === 'string' && id !== '') return { id };
  throw new PolicyTextError('a document with `form: singleton` and `policy` has the name or the id of its record');
}

/** JSON is also YAML, but the JSON parser reads a large text a hundred times faster. */
function asJson(text: string): Record<string, unknown> | undefined {
  if (!/^\s*\{/.test(text)) return undefined;
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

function asYaml(text: string): Record<string, unknown> {
  const document = parseDocument(text, { uniqueKeys: true, stringKeys: true });
  const [first] = document.errors;
  if (first !== undefined) throw new PolicyTextError(first.message, { cause: first });
  let value: unknown;
  try {
    value = document.toJS({ maxAliasCount: MAX_ALIASES });
  } catch (cause) {
    throw new PolicyTextError(cause instanceof Error ? cause.message : String(cause), { cause });
  }
  if (value === null || value === undefined) return {};
  if (typeof value !== 'object' || Array.isArray(value))
    throw new PolicyTextError('a policy is a map with the keys default_policy and source_groups');
  return value as Record<string, unknown>;
}

/** Parses the text when the first place is requested. */
function placesOf(text: string): PolicyText['where'] {
  let read: { readonly contents: unknown; readonly lines: LineCounter } | undefined;
  return (pointer) => {
    if (text.length > LONGEST_WITH_PLACES) return null;
    if (read === undefined) {
      const lines = new LineCounter();
      read = { lines, contents: parseDocument(text, { lineCounter: lines, prettyErrors: false }).contents };
    }
    const path = pointer
      .split('/')
      .slice(1)
      .map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'));
    for (let length = path.length; length > 0; length--) {
      const offset = offsetOf(read.contents, path.slice(0, length));
      if (offset === undefined) continue;
      const { line, col } = read.lines.linePos(offset);
      return { line, column: col };
    }
    return { line: 1, column: 1 };
  };
}
