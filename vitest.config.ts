import { defineConfig } from 'vitest/config';

const shared = {
  resolve: { conditions: ['weir-source'] },
  ssr: { resolve: { conditions: ['weir-source'] } },
};

/** Tests that measure time or own the network of the machine run alone, after the others. */
const alone = ['test/kernel/**/*.test.ts', 'test/e2e/**/*.test.ts'];

export default defineConfig({
  test: {
    globalSetup: ['test/build.ts'],
    reporters: ['default'],
    projects: [
      {
        ...shared,
        test: {
          name: 'parts',
          include: ['test/**/*.test.ts'],
          exclude: alone,
          execArgv: ['--conditions=development', '--conditions=weir-source'],
          testTimeout: 30_000,
          hookTimeout: 60_000,
          pool: 'forks',
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        ...shared,
        test: {
          name: 'machine',
          include: alone,
          execArgv: ['--conditions=development', '--conditions=weir-source'],
          testTimeout: 120_000,
          hookTimeout: 120_000,
          pool: 'forks',
          maxWorkers: 1,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
