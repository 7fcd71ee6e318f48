import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const marker = '/dist/src/threads/';
const root = here.endsWith(marker)
  ? here.slice(0, -marker.length)
  : fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');

/**
 * Returns the absolute path of a file in the build folder `dist`. Worker threads run built code, even if the
 * parent thread runs TypeScript sources.
 */
export function built(path: string): string {
  return `${root}/dist/${path}`;
}
