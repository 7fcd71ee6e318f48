import { describe, test } from 'vitest';

type Runner = { readonly test: typeof test; readonly describe: typeof describe };

/** Reasons for `skipUnless` that several files give. */
export const LACKS = {
  apiMachinery: 'api-machinery is not built: npm run api-machinery',
  conntrackLookup: 'the kernel has no conntrack lookup for BPF programs, or keeps no entry long enough',
  flowtables: 'the kernel has no flowtables (module nf_flow_table)',
  kubeApi: 'kube-apiserver is not built: npm run kube-apiserver',
  netfilterPrograms: 'the kernel has no BPF programs of Netfilter (Linux 6.4)',
  root: 'it needs root',
  tcx: 'the kernel has no TCX (Linux 6.6)',
  vlans: 'the kernel has no VLAN interfaces (module 8021q)',
} as const;

/** The runner that runs tests and groups; the other runner of `skipUnless` skips them. */
const RUNS: Runner = { test, describe };

/**
 * Returns `test` and `describe`, which skip their tests unless `isPossible`. The name of a skipped test then
 * contains `reason`, and scripts/test.sh prints the name at its end. `reason`: what this machine lacks, as a
 * sentence without a full stop. A lint rule refuses other ways to skip a test.
 */
export function skipUnless(isPossible: boolean, reason: string): Runner {
  if (isPossible) return RUNS;
  const marked = (name: string): string => `${name} (skipped: ${reason})`;
  const skipping = (of: typeof test | typeof describe) => {
    const skip = of.skip as (name: string, ...rest: unknown[]) => void;
    const each = of.skip.each as (rows: unknown) => (name: string, ...rest: unknown[]) => void;
    return Object.assign((name: string, ...rest: unknown[]) => skip(marked(name), ...rest), {
      each:
        (rows: unknown) =>
        (name: string, ...rest: unknown[]) =>
          each(rows)(marked(name), ...rest),
    });
  };
  return { test: skipping(test), describe: skipping(describe) } as unknown as Runner;
}
