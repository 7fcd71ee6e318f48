import { defineConfig } from 'vitest/config';
import { builtCode } from './vitest.config.js';

/** Long trials against tools of others, for `npm run trials`. The suite does not include them. */
export default defineConfig({
  ...builtCode,
  test: {
    ...builtCode.test,
    globalSetup: ['test/build.ts'],
    include: ['test/trials/**/*.trial.ts'],
    maxWorkers: 1,
    fileParallelism: false,
  },
});
