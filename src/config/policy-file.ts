import { unwatchFile, watchFile } from 'node:fs';
import { MOST_BYTES, readBounded } from '#files/bounded-file.js';
import { reasonOf } from '#files/system-failure.js';
import { type PolicyText, readPolicyText } from './policy-text.js';

/** The file cannot be read, or is no YAML. */
class PolicyFileError extends Error {
  override readonly name = 'PolicyFileError';
  readonly code = 'policy_file_unreadable';
}

async function readPolicyFile(path: string): Promise<PolicyText> {
  try {
    return readPolicyText((await readBounded(path, MOST_BYTES.policy)).toString());
  } catch (cause) {
    throw new PolicyFileError(`read the policy file ${path}: ${reasonOf(cause)}`, { cause });
  }
}

/**
 * Hands in the policy of a file now and whenever the file changes, one after the other. Looks at the file's status,
 * so that a file replaced by renaming or behind a link is followed too. Answers how to stop.
 */
export function followPolicyFile(
  path: string,
  apply: (file: PolicyText) => Promise<void>,
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
