/** Returns the key of a DNS name for `LookupIndex`: the name in wire format as a Latin-1 string. */
export function wireName(labels: readonly string[]): string {
  return `${labels.map((label) => String.fromCharCode(label.length) + label).join('')}\0`;
}

/** Returns the key of a DNS name for `LookupIndex`. The labels of the name must have no dots inside. */
export function wireNameOf(name: string): string {
  return wireName(name.split('.'));
}
