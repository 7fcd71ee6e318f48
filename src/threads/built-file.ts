import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const marker = '/dist/src/threads/';
const root = here.endsWith(marker)
  ? here.slice(0, -marker.length)
  : fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');

/** The path of a file in the build. Worker threads run built code, even if the parent runs the sources. */
export function built(path: string): string {
  return `${root}/dist/${path}`;
}
