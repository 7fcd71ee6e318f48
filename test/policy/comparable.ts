import type { ParsedPolicy } from '#policy/check/group-write.js';

const decoder = new TextDecoder();

/**
 * Replaces the byte arrays of a `ParsedPolicy` by strings, because `expect(…).toEqual` compares strings much
 * faster.
 */
export function comparable({ parts, outline }: ParsedPolicy): unknown {
  const groups = parts.groups.map((part) => ({ ...part, text: part.text && decoder.decode(part.text) }));
  return { parts: { ...parts, groups }, outline };
}
