import { defineConfig } from 'vitest/config';
import { builtCode } from './vitest.config.js';

/** Tests that `npm run installed-test` leaves out, and why. */
const leftOut = {
  'test/e2e/init-node.test.ts': 'it replaces /etc and /run of this machine, not those of the Debian system',
};

for (const [file, reason] of Object.entries(leftOut)) console.log(`left out: ${file}: ${reason}`);

/**
 * The end-to-end tests for `npm run installed-test`, whose nodes and commands are those of an installed
 * package. The suite runs the same files with the nodes of this build.
 */
export default defineConfig({
  ...builtCode,
  test: {
    ...builtCode.test,
    globalSetup: ['test/build.ts'],
    include: ['test/e2e/*.{test,installed}.ts'],
    exclude: Object.keys(leftOut),
    maxWorkers: 3,
  },
});
