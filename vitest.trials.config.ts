import { defineConfig } from 'vitest/config';

/** Long trials against tools of others, for `npm run trials`. The suite does not include them. */
export default defineConfig({
  resolve: { conditions: ['weir-source'] },
  ssr: { resolve: { conditions: ['weir-source'] } },
  test: {
    globalSetup: ['test/build.ts'],
    include: ['test/trials/**/*.trial.ts'],
    execArgv: ['--conditions=development', '--conditions=weir-source'],
    testTimeout: 300_000,
    hookTimeout: 120_000,
    pool: 'forks',
    maxWorkers: 1,
    fileParallelism: false,
  },
});
