import { defineConfig } from 'vitest/config';
import { builtCode } from './vitest.config.js';

/**
 * Rounds of kill -9 at random places, and the failures of a cluster, for `npm run faults`. The suite leaves
 * these out.
 */
export default defineConfig({
  ...builtCode,
  test: {
    ...builtCode.test,
    globalSetup: ['test/build.ts'],
    include: ['test/**/*.faults.ts'],
  },
});
