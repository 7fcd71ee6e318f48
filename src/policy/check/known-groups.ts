import type { KnownItems } from '#policy/document/json-scanner.js';
import { LIMITS } from '#policy/document/limits.js';
import type { GroupPart, PolicyParts } from './policy-parts.js';

/**
 * Finds in a text the groups of a policy that was read before, by their bytes: what stood there was found valid, and
 * what was made of it holds, also where it stands at another place now.
 */
export class KnownGroups implements KnownItems {
  /** By their place in the text. */
  readonly found = new Map<number, GroupPart>();
  readonly #parts: PolicyParts;
  /** Where the group stands in the policy before that follows on the one found last, and how many were not found since. */
  #next = 0;
  #missed = 0;

  constructor(parts: PolicyParts) {
    this.#parts = parts;
  }

  lengthAt(bytes: Uint8Array, at: number, place: number): number {
    const next = this.#next;
    for (const candidate of new Set([next, next + 1, next + this.#missed])) {
      const part = this.#parts.groups[candidate];
      if (part?.text === undefined || !standsAt(bytes, at, part.text)) continue;
      this.found.set(place, part);
      this.#next = candidate + 1;
      this.#missed = 0;
      return part.text.length;
    }
    this.#missed++;
    return 0;
  }

  /** Whether nothing is wrong with a policy of these groups besides what each of them says. */
  areValidWith(
    others: readonly { readonly id: string; readonly rules?: readonly unknown[] | undefined }[],
    integrations: ReadonlySet<string> | undefined,
  ): boolean {
    const found = [...this.found.values()];
    const count = found.length + others.length;
    const ids = new Set([...found.map(({ group }) => group.id), ...others.map(({ id }) => id)]);
    const rules =
      found.reduce((sum, { group }) => sum + group.rules.length, 0) +
      others.reduce((sum, group) => sum + (group.rules?.length ?? 0), 0);
    return (
      ids.size === count &&
      count <= LIMITS.groups &&
      rules <= LIMITS.rules &&
      found.every((part) => part.integrations.every((name) => integrations?.has(name) !== false))
    );
  }
}

function standsAt(bytes: Uint8Array, at: number, text: Uint8Array): boolean {
  const { length } = text;
  if (at + length > bytes.length) return false;
  for (let index = 0; index < length; index++) if (bytes[at + index] !== text[index]) return false;
  return true;
}
