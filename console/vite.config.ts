import { mkdirSync, writeFileSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vite';

const repository = fileURLToPath(new URL('..', import.meta.url));

/**
 * Writes dist/console.meta.json in the form of a metafile of esbuild: for each file, the sources whose code
 * is in it. A release takes the licences of the packages from it.
 */
const metafile: Plugin = {
  name: 'metafile',
  generateBundle(_, files) {
    const chunks = Object.values(files).flatMap((file) => (file.type === 'chunk' ? [file] : []));
    const outputs = chunks.map(({ fileName, modules }): [string, object] => [
      fileName,
      {
        inputs: Object.fromEntries(
          Object.entries(modules).map(([path, { renderedLength }]) => [
            relative(repository, path),
            { bytesInOutput: renderedLength },
          ]),
        ),
      },
    ]);
    mkdirSync(`${repository}/dist`, { recursive: true });
    writeFileSync(`${repository}/dist/console.meta.json`, JSON.stringify({ outputs: Object.fromEntries(outputs) }));
  },
};

/** The API of a node for `vite --config console/vite.config.ts`, which serves the sources of the console. */
const node = { target: process.env.WEIR_URL ?? 'http://127.0.0.1:8080', ws: true };

export default defineConfig({
  root: `${repository}/console`,
  base: '/console/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  plugins: [metafile],
  build: {
    outDir: `${repository}/dist/console`,
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0,
    // The editor is one chunk, which only the page Policy loads.
    chunkSizeWarningLimit: 1_000,
    // The polyfill is an inline script, which the content security policy of the page forbids.
    modulePreload: { polyfill: false },
  },
  server: { proxy: { '^/(api|ready|health|openapi)': node } },
});
