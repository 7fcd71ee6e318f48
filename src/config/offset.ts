import { isMap, isNode, isScalar, isSeq } from 'yaml';

/**
 * The offset of the value at a path in its YAML. Returns the offset of the key on request, and for values
 * that are not scalars.
 */
export function offsetOf(
  contents: unknown,
  path: readonly PropertyKey[],
  what: 'value' | 'key' = 'value',
): number | undefined {
  let node = contents;
  let offset: number | undefined;
  for (const key of path) {
    if (isMap(node)) {
      const pair = node.items.find((item) => isScalar(item.key) && item.key.value === key);
      if (pair === undefined) return undefined;
      const keyOffset = isScalar(pair.key) ? pair.key.range?.[0] : undefined;
      node = pair.value;
      offset = what === 'value' && isScalar(node) && node.value !== null ? node.range?.[0] : keyOffset;
    } else if (isSeq(node)) {
      node = node.items[Number(key)];
      offset = isNode(node) ? (node.range?.[0] ?? offset) : undefined;
    } else return undefined;
  }
  return offset;
}
