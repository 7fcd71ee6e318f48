import { defineConfig } from 'vitest/config';

export default defineConfig({
  resolve: { conditions: ['weir-source'] },
  ssr: { resolve: { conditions: ['weir-source'] } },
  test: {
    include: ['test/**/*.test.ts'],
    execArgv: ['--conditions=development', '--conditions=weir-source'],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    pool: 'forks',
    maxWorkers: 2,
    reporters: ['default'],
  },
});
