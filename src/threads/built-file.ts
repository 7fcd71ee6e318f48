import { createRequire } from 'node:module';
import { dirname } from 'node:path';

const root = dirname(createRequire(import.meta.url).resolve('weir/package.json'));

/**
 * Returns the absolute path of a file in the build folder `dist`. The result is the same whether the caller
 * is in a bundle (`dist/node`), a compiled module (`dist/src`) or a TypeScript source.
 */
export function built(path: string): string {
  return `${root}/dist/${path}`;
}
