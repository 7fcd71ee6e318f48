import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const marker = '/dist/src/threads/';
const root = here.endsWith(marker)
  ? here.slice(0, -marker.length)
  : fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');

/** A file of the build. Worker threads run built code, also where the sources are loaded directly. */
export function built(path: string): string {
  return `${root}/dist/${path}`;
}
