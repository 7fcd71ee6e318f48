import { LineCounter } from 'yaml';
import { nestingFault, offsetOf, parseYaml } from '#config/yaml-text.js';

/**
 * A policy document as an operator wrote it.
 * - A document with a member `policy` is an envelope.
 * - A document without `policy` is a policy in singleton form.
 * - A document with `form: singleton` and `policy` is also a policy in singleton form; its `name` or `id`
 *   selects the stored policy to write.
 */
export type PolicyText = {
  readonly form: 'envelope' | 'singleton';
  /**
   * The stored policy that a document in singleton form (without name and mode) replaces. Null: a singleton
   * document replaces the active policy, and an envelope replaces the policy that it names.
   */
  readonly record: { readonly name: string } | { readonly id: string } | null;
  readonly value: Readonly<Record<string, unknown>>;
  /** The JSON to send to the API. A JSON text is sent unchanged. */
  readonly json: string;
  /**
   * Returns the line and column of a JSON pointer in the text, or of the nearest parent that exists. Returns
   * null if the text is longer than `LONGEST_WITH_PLACES`.
   */
  where(pointer: string): Place | null;
};

/** A position in the text; the first line and the first column are 1. */
type Place = { readonly line: number; readonly column: number };

export class PolicyTextError extends Error {
  override readonly name = 'PolicyTextError';
  readonly code = 'policy_unreadable';
  /** Creates the error. `place`: the position of a syntax error; null for other errors. */
  constructor(
    message: string,
    readonly place: Place | null = null,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

const MAX_ALIASES = 100;
/**
 * The longest text, in characters, for which `where` returns positions. `where` parses the text again, which
 * takes about 5 s for a text of this length.
 */
const LONGEST_WITH_PLACES = 2 * 1024 * 1024;

/** Does not validate the policy; the node does. Throws a `PolicyTextError` for a syntax error. */
export function readPolicyText(text: string): PolicyText {
  const json = asJson(text);
  const value = json === undefined ? asYaml(text) : json;
  const fault = json === undefined ? undefined : nestingFault(json);
  if (fault !== undefined) throw new PolicyTextError(fault);
  const sent = json === undefined ? JSON.stringify(value) : text;
  const where = placesOf(text);
  if (!('policy' in value)) return { form: 'singleton', record: null, value, json: sent, where };
  const record = singletonRecordOf(value);
  if (record === undefined) return { form: 'envelope', record: null, value, json: sent, where };
  const policy = (value.policy ?? {}) as Readonly<Record<string, unknown>>;
  const inside: PolicyText['where'] = (pointer) => where(`/policy${pointer}`);
  return { form: 'singleton', record, value: policy, json: JSON.stringify(policy), where: inside };
}

/**
 * Returns the stored policy that a document with `form: singleton` selects; undefined for an envelope (policy
 * with name and mode).
 */
function singletonRecordOf({ form, name, id }: Readonly<Record<string, unknown>>): PolicyText['record'] | undefined {
  if (form !== 'singleton') return undefined;
  if (typeof name === 'string' && name !== '') return { name };
  if (typeof id === 'string' && id !== '') return { id };
  throw new PolicyTextError(
    'a document with `form: singleton` and `policy` needs the name or the id of the stored policy',
  );
}

/**
 * Parses the text as JSON; returns undefined if the text is not JSON. The YAML parser can also read JSON, but
 * it needs a hundred times longer for a large text.
 */
function asJson(text: string): Record<string, unknown> | undefined {
  if (!/^\s*\{/.test(text)) return undefined;
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

function asYaml(text: string): Record<string, unknown> {
  const lines = new LineCounter();
  const options = { uniqueKeys: true, stringKeys: true, lineCounter: lines, prettyErrors: false };
  const document = parseYaml(text, options);
  const [first] = document.errors;
  if (first !== undefined) {
    const { line, col } = lines.linePos(first.pos[0]);
    throw new PolicyTextError(first.message, { line, column: col }, { cause: first });
  }
  let value: unknown;
  try {
    value = document.toJS({ maxAliasCount: MAX_ALIASES });
  } catch (cause) {
    throw new PolicyTextError(cause instanceof Error ? cause.message : String(cause), null, { cause });
  }
  if (value === null || value === undefined) return {};
  if (typeof value !== 'object' || Array.isArray(value))
    throw new PolicyTextError('a policy is a map with the keys default_policy and source_groups');
  return value as Record<string, unknown>;
}

/** Returns the function `where` of a text. The first call of `where` parses the text. */
function placesOf(text: string): PolicyText['where'] {
  let read: { readonly contents: unknown; readonly lines: LineCounter } | undefined;
  return (pointer) => {
    if (text.length > LONGEST_WITH_PLACES) return null;
    if (read === undefined) {
      const lines = new LineCounter();
      read = { lines, contents: parseYaml(text, { lineCounter: lines, prettyErrors: false }).contents };
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
