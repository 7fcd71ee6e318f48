/** The key of a name for `LookupIndex`. */
export function wireName(labels: readonly string[]): string {
  return `${labels.map((label) => String.fromCharCode(label.length) + label).join('')}\0`;
}

/** The key of a name without dots inside labels. */
export function wireNameOf(name: string): string {
  return wireName(name.split('.'));
}
