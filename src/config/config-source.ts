import { LineCounter, visit } from 'yaml';
import { z } from 'zod';
import { configSchema } from '#config/schema/config-schema.js';
import { bare, members, schemaAt } from '#config/schema/schema-tree.js';
import type { ConfigProblem } from './config-problem.js';
import { offsetOf, parseYaml } from './yaml-text.js';

export type Environment = Readonly<Record<string, string | undefined>>;

/** The configuration file merged with the environment variables, before validation. */
export type Source = {
  readonly value: unknown;
  readonly problems: readonly ConfigProblem[];
  /**
   * Returns the place where the value or the key at a path was set, in the form of `ConfigProblem.where`. If
   * the path does not exist, returns the place of its nearest parent.
   */
  where(path: readonly PropertyKey[], what?: 'value' | 'key'): string;
  /** Returns whether the value at a path comes from an environment variable, fully or partly. */
  isFromEnvironment(path: readonly string[], value: unknown): boolean;
};

/**
 * Reads the configuration text `yaml` and the environment variables. Problems show `name` as the name of the
 * file.
 */
export function readSource(yaml: string, name: string, environment: Environment): Source {
  const lines = new LineCounter();
  const document = parseYaml(yaml, { lineCounter: lines, prettyErrors: false });
  const problems: ConfigProblem[] = [];
  const at = (offset: number): string => {
    const { line, col } = lines.linePos(offset);
    return `${name}:${line}:${col}`;
  };

  const reportedLines = new Set<number>();
  for (const { message, pos } of [...document.errors, ...document.warnings]) {
    const { line } = lines.linePos(pos[0]);
    if (reportedLines.has(line)) continue;
    reportedLines.add(line);
    // A syntax error at `{` after `$` is probably an unquoted `${NAME}`: inside { } and [ ], its brace starts
    // a YAML map.
    const variable = /^\$(\{[^}\n]*\})/.exec(yaml.slice(pos[0] - 1))?.[0];
    const hint = variable === undefined ? message : `inside { } and [ ] a variable needs quotes: "${variable}"`;
    problems.push({ code: 'syntax', key: '', where: at(pos[0]), message: hint });
  }
  /**
   * The values that contain a substituted variable. The set has values and not positions, because a YAML
   * alias repeats a value at another position.
   */
  const substituted = new Set<unknown>();
  visit(document, {
    Scalar(key, scalar) {
      if (key === 'key' || typeof scalar.value !== 'string') return;
      const { text, unset, replaced } = substitute(scalar.value, environment);
      scalar.value = text;
      if (replaced) substituted.add(text);
      for (const variable of unset) {
        const message = `the environment variable ${variable} is not set`;
        problems.push({ code: 'unset_variable', key: '', where: at(scalar.range?.[0] ?? 0), message });
      }
    },
  });

  /** Maps a dotted configuration key to the environment variable that set its value. */
  const overridden = new Map<string, string>();
  const where: Source['where'] = (path, what = 'value') => {
    for (let length = path.length; length > 0; length--) {
      const variable = overridden.get(path.slice(0, length).join('.'));
      if (variable !== undefined) return variable;
      const offset = offsetOf(document.contents, path.slice(0, length), what);
      if (offset !== undefined) return at(offset);
    }
    return name;
  };

  let value: unknown = document.errors.length > 0 ? undefined : document.toJS({ maxAliasCount: 100 });
  if (value === null) value = {};
  if (isRecord(value)) {
    for (const [variable, text] of Object.entries(environment).sort()) {
      if (text === undefined || !/^WEIR_.+__/.test(variable)) continue;
      const keys = variable.slice('WEIR_'.length).toLowerCase().split('__');
      const schema = schemaAt(configSchema, keys);
      if (schema === undefined || members(schema).length > 0) {
        problems.push({ code: 'unknown_key', key: keys.join('.'), where: variable, message: 'there is no such key' });
        continue;
      }
      if (put(value, keys, bare(schema) instanceof z.ZodArray ? listOf(text) : text)) {
        overridden.set(keys.join('.'), variable);
      }
    }
  }
  const isSubstituted = (part: unknown): boolean =>
    typeof part === 'object' && part !== null ? Object.values(part).some(isSubstituted) : substituted.has(part);
  return {
    value,
    problems,
    where,
    isFromEnvironment: (path, part) => overridden.has(path.join('.')) || isSubstituted(part),
  };
}

/**
 * Replaces `${NAME}` with the value of the environment variable NAME. Replaces the escape sequence `$${` with
 * `${`.
 */
function substitute(value: string, environment: Environment): { text: string; unset: string[]; replaced: boolean } {
  const unset: string[] = [];
  let replaced = false;
  const text = value.replace(/\$(\$\{)|\$\{([^}]*)\}/g, (_, escaped: string | undefined, variable: string) => {
    if (escaped !== undefined) return escaped;
    const found = environment[variable];
    if (found === undefined) unset.push(variable);
    replaced = true;
    return found ?? '';
  });
  return { text, unset, replaced };
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const listOf = (text: string): string[] => (text.trim() === '' ? [] : text.split(',').map((item) => item.trim()));

/**
 * Sets the value at a path of keys. Returns false if a parent on the path is not an object; the schema
 * reports this problem later.
 */
function put(root: Record<string, unknown>, keys: readonly string[], value: unknown): boolean {
  let section = root;
  for (const key of keys.slice(0, -1)) {
    section[key] ??= {};
    const next = section[key];
    if (!isRecord(next)) return false;
    section = next;
  }
  section[keys.at(-1) ?? ''] = value;
  return true;
}
