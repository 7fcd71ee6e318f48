import type { HeldPolicy } from '#policy/check/group-write.js';

const decoder = new TextDecoder();

/** Replaces byte arrays by strings, which are much faster to compare. */
export function comparable({ parts, outline }: HeldPolicy): unknown {
  const groups = parts.groups.map((part) => ({ ...part, text: part.text && decoder.decode(part.text) }));
  return { parts: { ...parts, groups }, outline };
}
