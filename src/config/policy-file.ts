import { unwatchFile, watchFile } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { parseDocument } from 'yaml';

/** A policy as it stands in `policy.file`: the envelope form where it has a member `policy`, else the singleton form. */
export type PolicyFile = { readonly form: 'envelope' | 'singleton'; readonly json: string };

/** The file cannot be read, or is no YAML. */
class PolicyFileError extends Error {
  override readonly name = 'PolicyFileError';
  readonly code = 'policy_file_unreadable';
}

const MAX_ALIASES = 100;

async function readPolicyFile(path: string): Promise<PolicyFile> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    throw new PolicyFileError(`read the policy file ${path}: ${messageOf(cause)}`, { cause });
  }
  const document = parseDocument(text, { uniqueKeys: true, stringKeys: true });
  const [first] = document.errors;
  if (first !== undefined) throw new PolicyFileError(`read the policy file ${path}: ${first.message}`);
  let value: unknown;
  try {
    value = document.toJS({ maxAliasCount: MAX_ALIASES });
  } catch (cause) {
    throw new PolicyFileError(`read the policy file ${path}: ${messageOf(cause)}`, { cause });
  }
  const isEnvelope = typeof value === 'object' && value !== null && 'policy' in value;
  return { form: isEnvelope ? 'envelope' : 'singleton', json: JSON.stringify(value ?? {}) };
}

/**
 * Hands in the policy of a file now and whenever the file changes, one after the other. Looks at the file's status,
 * so that a file replaced by renaming or behind a link is followed too. Answers how to stop.
 */
export function followPolicyFile(
  path: string,
  apply: (file: PolicyFile) => Promise<void>,
  onError: (error: unknown) => void,
  intervalMs = 1_000,
): () => void {
  let turn: Promise<void> = Promise.resolve();
  const take = (): void => {
    turn = turn.then(async () => apply(await readPolicyFile(path))).catch(onError);
  };
  watchFile(path, { interval: intervalMs, persistent: false }, (now, before) => {
    if (now.mtimeMs !== before.mtimeMs || now.ino !== before.ino || now.size !== before.size) take();
  });
  take();
  return () => unwatchFile(path);
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
