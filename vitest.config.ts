import { fileURLToPath } from 'node:url';
import { defineConfig, type UserWorkspaceConfig } from 'vitest/config';

/** The longest wait of a test for a state, in ms. */
const HANGING_MS = 60_000;

const root = fileURLToPath(new URL('.', import.meta.url));
/**
 * Tests import the built code, which Node loads directly. Vitest compiles only the test files and their
 * helpers.
 */
export const builtCode = {
  resolve: { alias: [{ find: /^#test\/(.*)\.js$/, replacement: `${root}test/$1.ts` }] },
  test: {
    execArgv: ['--conditions=development', '--enable-source-maps'],
    pool: 'forks' as const,
    maxWorkers: 2,
    // These limits only end a test that hangs. A test states bounds of a behaviour by a ProgressClock.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: HANGING_MS } },
    server: { deps: { external: [/\/dist\//] } },
  },
} satisfies UserWorkspaceConfig;

/** Tests of whole nodes, of network namespaces and of etcd members. */
const machine = ['test/kernel/**/*.test.ts', 'test/e2e/**/*.test.ts', 'test/cluster/**/*.test.ts'];
/**
 * Tests of `machine` with time limits that a busy file could exceed. These files wait most of their time, so
 * two of them run beside each other.
 */
const timed = [
  'test/kernel/interfaces.test.ts',
  'test/kernel/members.test.ts',
  'test/cluster/{cluster,etcd-client}.test.ts',
  'test/e2e/inspected-nat.test.ts',
  'test/e2e/kubernetes.test.ts',
];
/**
 * Tests that change nothing outside of their file. The files of one worker share its modules, because loading
 * the modules takes longer than most of these tests.
 */
const shared = [
  'test/{api,chaos,cli,config,deploy,docs,policy,policy-write,statecharts}/**/*.test.ts',
  'test/dns/wire/**/*.test.ts',
  'test/service-plane/{certificate,http,tls}/**/*.test.ts',
];

/** Two test files use a half (`machine`) to three quarters (`parts`) of two processors. */
const WAITING_WORKERS = 3;

export default defineConfig({
  test: {
    globalSetup: ['test/build.ts'],
    reporters: ['default'],
    projects: [
      {
        ...builtCode,
        test: {
          ...builtCode.test,
          name: 'shared',
          maxWorkers: WAITING_WORKERS,
          include: shared,
          isolate: false,
          sequence: { groupOrder: 0 },
        },
      },
      {
        ...builtCode,
        test: {
          ...builtCode.test,
          name: 'parts',
          maxWorkers: WAITING_WORKERS,
          include: ['test/**/*.test.ts'],
          exclude: [...machine, ...timed, ...shared],
          sequence: { groupOrder: 0 },
        },
      },
      {
        ...builtCode,
        test: {
          ...builtCode.test,
          name: 'machine',
          maxWorkers: WAITING_WORKERS,
          include: machine,
          exclude: timed,
          sequence: { groupOrder: 1 },
        },
      },
      {
        ...builtCode,
        test: {
          ...builtCode.test,
          name: 'timed',
          include: timed,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
