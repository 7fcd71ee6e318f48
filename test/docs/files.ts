import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export const root = new URL('../../', import.meta.url);

export type TextFile = { readonly path: string; readonly text: string };

/** Reads all files in `folders` and their subfolders whose name matches `endings`. */
export function filesIn(folders: readonly string[], endings: RegExp): readonly TextFile[] {
  return folders.flatMap((folder) =>
    readdirSync(fileURLToPath(new URL(folder, root)), { recursive: true, encoding: 'utf8' })
      .filter((name) => endings.test(name))
      .map((name) => fileAt(`${folder}/${name}`)),
  );
}

export function fileAt(path: string): TextFile {
  return { path, text: readFileSync(new URL(path, root), 'utf8') };
}

/** The Markdown pages in the root folder of the repository. */
export const rootPages = ['ARCHITECTURE.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'README.md', 'SECURITY.md']
  .filter((path) => existsSync(new URL(path, root)))
  .map(fileAt);
