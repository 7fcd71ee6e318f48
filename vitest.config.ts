import { fileURLToPath } from 'node:url';
import { defineConfig, type UserWorkspaceConfig, type ViteUserConfig } from 'vitest/config';

/** The longest wait of a test for a state, in ms. */
const HANGING_MS = 60_000;

const root = fileURLToPath(new URL('.', import.meta.url));
/**
 * Tests import the built code, which Node loads directly. Vitest compiles only the test files and their
 * helpers.
 */
const builtCode = {
  resolve: { alias: [{ find: /^#test\/(.*)\.js$/, replacement: `${root}test/$1.ts` }] },
  test: {
    execArgv: ['--conditions=development', '--enable-source-maps'],
    pool: 'forks' as const,
    maxWorkers: 2,
    setupFiles: [fileURLToPath(new URL('test/typed-array-equality.ts', import.meta.url))],
    // These limits only end a test that hangs. A test states bounds of a behaviour by a ProgressClock.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: HANGING_MS } },
    server: { deps: { external: [/\/dist\//] } },
  },
} satisfies UserWorkspaceConfig;

/** Tests of whole nodes, of network namespaces, of etcd members and of the console in a browser. */
const machine = ['test/{kernel,e2e,cluster}/**/*.test.ts', 'test/console/*.test.ts'];
/**
 * Tests of `machine` with time limits that a busy file could exceed. These files wait most of their time, so
 * three of them run beside each other.
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
  'test/{actors,addresses,analysis,api,arrays,bus,chaos,chart-inspection,cli,config,contracts}/**/*.test.ts',
  'test/{dataplane,deploy,docs,files,observe,policies,policy,rocksdb,statecharts,store,threads}/**/*.test.ts',
  'test/console/unit/**/*.test.ts',
  'test/dns/wire/**/*.test.ts',
  'test/service-plane/{ca,certificate,http,intercept,tls}/**/*.test.ts',
];

/** Four test files use nine tenths of two processors: a file waits a part of its time. */
const WAITING_WORKERS = 4;
const TIMED_WORKERS = 3;

const suite: ViteUserConfig = {
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
          maxWorkers: TIMED_WORKERS,
          include: timed,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
};

const alone = { maxWorkers: 1, fileParallelism: false };

/** Tests that `npm run installed-test` leaves out, and why. */
const notInstalled = {
  'test/e2e/init-node.test.ts': 'it replaces /etc and /run of this machine, not those of the Debian system',
};

/** Tests that the suite leaves out, by the mode of Vitest that runs them. */
const modes: Readonly<Record<string, ViteUserConfig['test']>> = {
  /** `npm run faults`: rounds of kill -9 at random places, and the failures of a cluster. */
  faults: { include: ['test/**/*.faults.ts'] },
  /** `npm run trials`: long trials against tools of others. */
  trials: { include: ['test/trials/**/*.trial.ts'], ...alone },
  /** `npm run screenshots`: the pictures of README.md and docs/console.md. */
  pictures: { include: ['test/console/*.pictures.ts'], ...alone },
  /** `npm run kubelet-test`, which makes the namespaces: the DaemonSet under a kubelet. */
  kubelet: { include: ['test/kubelet/**/*.kubelet.ts'], ...alone },
  /**
   * `npm run installed-test`: the end-to-end tests with the nodes and commands of an installed package. The
   * suite runs the same files with the nodes of this build.
   */
  installed: {
    include: ['test/e2e/*.{test,installed}.ts'],
    exclude: Object.keys(notInstalled),
    maxWorkers: WAITING_WORKERS,
  },
};

export default defineConfig(({ mode }) => {
  const of = modes[mode];
  if (of === undefined) return suite;
  if (mode === 'installed')
    for (const [file, reason] of Object.entries(notInstalled)) console.log(`left out: ${file}: ${reason}`);
  return { ...builtCode, test: { ...builtCode.test, globalSetup: ['test/build.ts'], ...of } };
});
