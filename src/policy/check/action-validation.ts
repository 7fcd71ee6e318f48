import { parseAction } from '#policy/model/action.js';
import type { Validation } from './validation-context.js';

export function validateAction(word: string | undefined, at: string, { problems }: Validation): void {
  if (word === undefined || parseAction(word) !== undefined) return;
  problems.add(at, 'invalid_action', `${at.slice(at.lastIndexOf('/') + 1)} must be "allow" or "deny".`);
}
