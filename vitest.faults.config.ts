import { defineConfig } from 'vitest/config';
import { builtCode } from './vitest.config.js';

/** Many rounds of kill -9 at random places, for `npm run faults`. The suite does not include them. */
export default defineConfig({
  ...builtCode,
  test: {
    ...builtCode.test,
    globalSetup: ['test/build.ts'],
    include: ['test/**/*.faults.ts'],
    testTimeout: 300_000,
    hookTimeout: 120_000,
  },
});
