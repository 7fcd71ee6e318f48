import { fileAt } from './files.js';

/** A block between fences on a page, and its language; the language is empty if the fence names none. */
export type Block = { readonly page: string; readonly language: string; readonly text: string };

export function blocksOf(page: string): readonly Block[] {
  const fenced = fileAt(page).text.matchAll(/^ *```(\w*)\n([\s\S]*?)^ *```$/gm);
  return [...fenced].map(([, language = '', text = '']) => ({ page, language, text }));
}

/** Returns the text of the block of a page that begins with `start`. Throws unless there is exactly one. */
export function blockAt(page: string, start: string): string {
  const [found, ...others] = blocksOf(page).filter(({ text }) => text.startsWith(start));
  if (found === undefined || others.length > 0)
    throw new Error(`${page} must have one block that begins with ${start}`);
  return found.text;
}
