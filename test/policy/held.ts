import type { HeldPolicy } from '#policy/check/group-write.js';

const decoder = new TextDecoder();

/** The same with texts in place of bytes, which take long to be compared one by one. */
export function legible({ parts, outline }: HeldPolicy): unknown {
  const groups = parts.groups.map((part) => ({ ...part, text: part.text && decoder.decode(part.text) }));
  return { parts: { ...parts, groups }, outline };
}
