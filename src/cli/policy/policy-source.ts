import { CliError, type Problem, type RefusedError } from '#cli/command-error.js';
import type { Terminal } from '#cli/terminal.js';
import { type PolicyText, PolicyTextError, readPolicyText } from '#config/policy-text.js';
import { MOST_BYTES, readPipeOrFile } from '#files/bounded-file.js';
import { reasonOf } from '#files/system-failure.js';

/** A policy that was read from a file, or from standard input. */
export type Source = PolicyText & {
  /** What sentences call it. */
  readonly label: string;
};

export async function readSource(file: string, terminal: Terminal): Promise<Source> {
  const label = file === '-' ? 'standard input' : file;
  let text: string;
  try {
    text = file === '-' ? await terminal.input() : readPipeOrFile(file, MOST_BYTES.policy).toString();
  } catch (cause) {
    throw new CliError(`${label} cannot be read: ${reasonOf(cause)}`, { cause });
  }
  if (text.trim() === '') throw new CliError(`${label} is empty`, { fix: 'an empty policy is written {}' });
  try {
    return { ...readPolicyText(text), label };
  } catch (cause) {
    if (!(cause instanceof PolicyTextError)) throw cause;
    throw new CliError(`${label} is neither YAML nor JSON: ${cause.message}`, { cause });
  }
}

/** `FILE:LINE:COLUMN: message (pointer)`, `prefix` being what stands around the document in what was sent. */
export function placed(source: Source, { pointer, message }: Problem, prefix = ''): string {
  const own = ownPointer(pointer, prefix);
  return `${placeOf(source, own)}: ${message}${own === '' ? '' : ` (${own})`}`;
}

const ownPointer = (pointer: string, prefix: string): string =>
  pointer.startsWith(prefix) ? pointer.slice(prefix.length) : '';

function placeOf(source: Source, pointer: string): string {
  const place = source.where(pointer);
  return place === null ? source.label : `${source.label}:${place.line}:${place.column}`;
}

/** The refusal with each of its problems at its line. */
export function atLines(refused: RefusedError, source: Source, prefix = ''): CliError {
  if (refused.problems.length === 0) return refused;
  const count = refused.problems.length;
  const lines = refused.problems.map((problem) => placed(source, problem, prefix));
  const heading = `${source.label} was refused: ${count} problem${count === 1 ? '' : 's'}`;
  const problems = refused.problems.map((problem) => {
    const pointer = ownPointer(problem.pointer, prefix);
    return { ...problem, pointer, where: placeOf(source, pointer) };
  });
  const { fix, code } = refused;
  return new CliError([heading, ...lines].join('\n'), { cause: refused, fix, code, problems });
}

/** The singleton form: in an envelope the groups have no modes, and get that of the envelope. */
export function singletonOf({ form, value }: Pick<PolicyText, 'form' | 'value'>): Readonly<Record<string, unknown>> {
  if (form === 'singleton') return value;
  const policy = (value.policy ?? {}) as Readonly<Record<string, unknown>>;
  const { source_groups: groups } = policy;
  if (!Array.isArray(groups)) return policy;
  // The groups of a disabled policy are as they will be once it is enforced.
  const mode = value.mode === 'disabled' ? 'enforce' : value.mode;
  return { ...policy, source_groups: groups.map((group: object) => ({ mode, ...group })) };
}
