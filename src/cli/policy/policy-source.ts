import { adviceOn } from '#cli/client/api-refusal.js';
import { brokenText } from '#cli/client/broken-assertions.js';
import { AssertionsFailedError, CliError, type Problem, type RefusedError } from '#cli/errors/command-error.js';
import type { Terminal } from '#cli/output/terminal.js';
import { type PolicyText, PolicyTextError, readPolicyText } from '#config/policy/policy-text.js';
import { MAX_BYTES, readPipeOrFile } from '#files/bounded-file.js';
import { reasonOf } from '#files/system-failure.js';

const STDIN = 'standard input';

/** A policy document that was read from a file or from standard input. */
export type Source = PolicyText & {
  /** The name of the file, or `standard input`, for messages. */
  readonly label: string;
};

export async function readSource(file: string, terminal: Terminal): Promise<Source> {
  const label = file === '-' ? STDIN : file;
  let text: string;
  try {
    text = file === '-' ? await terminal.input() : readPipeOrFile(file, MAX_BYTES.policy).toString();
  } catch (cause) {
    throw new CliError(`${label} cannot be read: ${reasonOf(cause)}`, { cause });
  }
  return sourceOf(text, label);
}

/**
 * Reads a policy document as `readSource` does. Throws a `CliError` with all problems if the document is
 * invalid. Does not find problems that depend on the integrations of a node. An envelope may lack the mode,
 * as for `weir policy apply --mode`.
 */
export async function readValidSource(file: string, terminal: Terminal): Promise<Source> {
  const source = await readSource(file, terminal);
  const hasMode = source.form === 'singleton' || 'mode' in source.value;
  await checkSource(source, hasMode ? undefined : 'enforce');
  return source;
}

/**
 * Throws a `CliError` with all problems if the document is invalid. `mode` replaces the mode of an envelope
 * (policy with name and mode).
 */
export async function checkSource(source: Source, mode?: string): Promise<void> {
  const { documentProblems } = await import('#main.js');
  const { form, value, json } = source;
  // Remove the id, which `weir policy get` prints in the envelope of a policy without a name. A write has
  // the id in its path.
  const { id, ...withoutId } = value;
  const hasId = form === 'envelope' && id !== undefined && value.name === undefined;
  const isSent = mode === undefined && !hasId;
  const envelope = { ...(hasId ? withoutId : value), ...(mode === undefined ? {} : { mode }) };
  const problems = await documentProblems(form, isSent ? json : JSON.stringify(envelope));
  if (problems.length > 0)
    throw listOf('is not a valid policy', source, problems, { code: INVALID, fix: adviceOn(INVALID) });
}
const INVALID = 'invalid_policy';

/** Parses the text of a policy document; `label` is its file. */
export function sourceOf(text: string, label: string): Source {
  if (text.trim() === '') throw new CliError(`${label} is empty`, { fix: 'write {} for an empty policy' });
  try {
    return { ...readPolicyText(text), label };
  } catch (cause) {
    if (!(cause instanceof PolicyTextError)) throw cause;
    const { place, message } = cause;
    const at = place === null ? label : `${label}:${place.line}:${place.column}`;
    throw new CliError(`${at}: the text is neither YAML nor JSON: ${message}`, { cause });
  }
}

/**
 * Formats a problem as `FILE:LINE:COLUMN: message (pointer)`. `prefix` is the JSON pointer of the policy
 * document within the request body.
 */
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

/**
 * Converts a refusal of the node to an error that lists each problem with its line and column in the
 * document.
 */
export function atLines(refused: RefusedError, source: Source, prefix = ''): CliError {
  if (refused instanceof AssertionsFailedError) return explainedWith(refused, source);
  if (refused.problems.length === 0) return refused;
  const { problems, fix, code } = refused;
  return listOf('was refused', source, problems, { prefix, cause: refused, fix, code });
}

/** Returns an error whose example flows are explained with the policy of the file, which is not in force. */
function explainedWith(refused: AssertionsFailedError, { label }: Source): CliError {
  const { assertions } = refused;
  return new AssertionsFailedError(brokenText(assertions, label === STDIN ? undefined : label), assertions, refused);
}

/**
 * Returns an error with the message `what` about the document, and a list of the problems with line and
 * column.
 */
function listOf(
  what: string,
  source: Source,
  found: readonly Problem[],
  {
    prefix = '',
    ...options
  }: ErrorOptions & { prefix?: string; fix?: string | undefined; code?: string | undefined } = {},
): CliError {
  const lines = found.map((problem) => placed(source, problem, prefix));
  const heading = `${source.label} ${what}: ${found.length} problem${found.length === 1 ? '' : 's'}`;
  const problems = found.map((problem) => {
    const pointer = ownPointer(problem.pointer, prefix);
    return { ...problem, pointer, where: placeOf(source, pointer) };
  });
  return new CliError([heading, ...lines].join('\n'), { ...options, problems });
}

/**
 * Converts a policy to singleton form. The groups in an envelope (policy with name and mode) have no mode, so
 * each group gets the mode of the envelope, or `defaultMode` if the envelope has no mode.
 */
export function singletonOf(
  { form, value }: Pick<PolicyText, 'form' | 'value'>,
  defaultMode = 'enforce',
): Readonly<Record<string, unknown>> {
  if (form === 'singleton') return value;
  const policy = (value.policy ?? {}) as Readonly<Record<string, unknown>>;
  const { source_groups: groups } = policy;
  if (!Array.isArray(groups)) return policy;
  // A group cannot have the mode `disabled`. Give the groups the mode `enforce` instead, as if the policy
  // were enforced.
  const { mode: own = defaultMode } = value;
  const mode = own === 'disabled' ? 'enforce' : own;
  return { ...policy, source_groups: groups.map((group: object) => ({ mode, ...group })) };
}
