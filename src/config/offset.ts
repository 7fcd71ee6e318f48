import { isMap, isNode, isScalar, isSeq } from 'yaml';

/**
 * Returns the character offset of the value at a path in a YAML document. Returns the offset of the key if
 * `what` is 'key' or the value is not a scalar. Returns undefined if the path does not exist.
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
