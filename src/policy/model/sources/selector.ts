import type { KubernetesSource } from '#contracts/policy/policy-document.js';
import type { Selector } from '#contracts/policy/policy-model.js';

/**
 * Returns a selector of a group. The key is the JSON text of the selector with sorted object keys, so that
 * the order of labels does not matter.
 */
export function selectorOf(source: KubernetesSource): Selector {
  return { key: JSON.stringify(sorted(source)), source };
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).filter(([, entry]) => entry !== undefined);
  // Use Object.fromEntries, which keeps a label key `__proto__`; an assignment would set the prototype.
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, entry]) => [key, sorted(entry)]));
}

/** Converts a key (JSON text) to the selector that it stands for. The object keys in it are sorted. */
export function sourceOf(key: string): KubernetesSource {
  return JSON.parse(key) as KubernetesSource;
}
