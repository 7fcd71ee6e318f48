import { defineConfig } from 'vitest/config';
import { builtCode } from './vitest.config.js';

/** The DaemonSet under a kubelet, for `npm run kubelet-test`, which makes the namespaces. */
export default defineConfig({
  ...builtCode,
  test: {
    ...builtCode.test,
    globalSetup: ['test/build.ts'],
    include: ['test/kubelet/**/*.kubelet.ts'],
    maxWorkers: 1,
    fileParallelism: false,
  },
});
