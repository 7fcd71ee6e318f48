import { release } from 'node:os';

const SKIP_NEIGH = 4;

/**
 * Returns the flags for a `bpf_fib_lookup` that needs only the route, without the neighbour entry. Kernels
 * before 6.3 have no such flag; for them the result is 0.
 */
export function fibFlags(kernelRelease = release()): number {
  return isSince(6, 3, kernelRelease) ? SKIP_NEIGH : 0;
}

/**
 * Returns whether a BPF program can read the kernel's counter of route changes, which is possible since Linux
 * 6.2.
 */
export function canCopyRoutes(kernelRelease = release()): boolean {
  return isSince(6, 2, kernelRelease);
}

function isSince(wantedMajor: number, wantedMinor: number, kernelRelease: string): boolean {
  const [major = 0, minor = 0] = kernelRelease.split('.').map((part) => Number.parseInt(part, 10));
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}
