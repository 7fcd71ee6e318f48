import { parseAction } from './action.js';
import type { Validation } from './validation.js';

export function validateAction(word: string | undefined, at: string, { problems }: Validation): void {
  if (word === undefined || parseAction(word) !== undefined) return;
  problems.add(at, 'invalid_action', 'An action is "allow" or "deny".');
}
