/** Maximum number of interface names in one sentence; the sentence gives only the count of further ones. */
const MAX_NAMES = 5;

/** Returns the names in alphabetical order as part of a sentence. */
export function listed(names: readonly string[]): string {
  const shown = names.toSorted().slice(0, MAX_NAMES).join(', ');
  return names.length > MAX_NAMES ? `${shown} and ${names.length - MAX_NAMES} more` : shown;
}
