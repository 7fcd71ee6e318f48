import type { ActionWord } from '#contracts/policy-document.js';
import type { Action } from '#contracts/policy-model.js';

/** Parses an action keyword such as `allow`, in upper or lower case. Returns undefined for any other text. */
export function parseAction(word: ActionWord): Action | undefined {
  if (word === 'allow' || word === 'deny') return word;
  const lower = word.toLowerCase();
  return lower === 'allow' || lower === 'deny' ? lower : undefined;
}
