/** Returns the part of a section of the configuration. Throws if the configuration lacks the section. */
export function configuredBy<Part>(section: string, part: Part | null): Part {
  if (part === null) throw new Error(`the configuration has no ${section} section`);
  return part;
}
