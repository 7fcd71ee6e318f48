import { defineConfig } from 'vitest/config';

const shared = {
  resolve: { conditions: ['weir-source'] },
  ssr: { resolve: { conditions: ['weir-source'] } },
};

/**
 * Tests of whole nodes and of network namespaces. They run one at a time after the others: with two workers,
 * a test that counts lost packets failed once.
 */
const machine = ['test/kernel/**/*.test.ts', 'test/e2e/**/*.test.ts'];
/**
 * Tests of code without threads, sockets and time limits. The files of one worker share its modules, because
 * loading the modules takes longer than most of these tests.
 */
const pure = [
  'test/{config,deploy,docs,policy,policy-write,statecharts}/**/*.test.ts',
  'test/dns/wire/**/*.test.ts',
  'test/service-plane/{certificate,http,tls}/**/*.test.ts',
];

export default defineConfig({
  test: {
    globalSetup: ['test/build.ts'],
    reporters: ['default'],
    projects: [
      {
        ...shared,
        test: {
          name: 'pure',
          include: pure,
          execArgv: ['--conditions=development', '--conditions=weir-source'],
          testTimeout: 30_000,
          hookTimeout: 60_000,
          pool: 'forks',
          isolate: false,
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        ...shared,
        test: {
          name: 'parts',
          include: ['test/**/*.test.ts'],
          exclude: [...machine, ...pure],
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
          include: machine,
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
