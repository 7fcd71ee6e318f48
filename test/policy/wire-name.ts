/** A name as `LookupIndex` takes it. */
export function wireName(labels: readonly string[]): string {
  return `${labels.map((label) => String.fromCharCode(label.length) + label).join('')}\0`;
}

/** The same of a name without odd dots. */
export function wireNameOf(name: string): string {
  return wireName(name.split('.'));
}
