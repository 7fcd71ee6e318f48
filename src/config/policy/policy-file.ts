import { MAX_BYTES, readBounded } from '#files/bounded-file.js';
import { reasonOf } from '#files/system-failure.js';
import { type PolicyText, readPolicyText } from './policy-text.js';

/** Thrown if a policy file or a file with assertions cannot be read, or is neither YAML nor JSON. */
class PolicyFileError extends Error {
  override readonly name = 'PolicyFileError';
  readonly code = 'policy_file_unreadable';
}

/** Reads the text of a policy file. Throws a `PolicyFileError` if it cannot be read. */
export const readPolicyFile = (path: string): Promise<PolicyText> => readText(path, 'the policy file');

/** Reads the text of a file with assertions, like `readPolicyFile`. */
export const readAssertionsFile = (path: string): Promise<PolicyText> => readText(path, 'the assertions file');

async function readText(path: string, what: string): Promise<PolicyText> {
  try {
    return readPolicyText((await readBounded(path, MAX_BYTES.policy)).toString());
  } catch (cause) {
    throw new PolicyFileError(`read ${what} ${path}: ${reasonOf(cause)}`, { cause });
  }
}
