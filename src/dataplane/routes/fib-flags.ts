import { release } from 'node:os';

const SKIP_NEIGH = 4;

/**
 * Returns the flags for calls of `bpf_fib_lookup` that need only the route, without the neighbour entry.
 * Kernels before 6.3 have no such flag, so the function returns 0 for them.
 */
export function fibFlags(kernelRelease = release()): number {
  return isSince(6, 3, kernelRelease) ? SKIP_NEIGH : 0;
}

/**
 * Returns whether BPF programs can read the kernel's counter of route changes. Kernels before 6.2 do not
 * allow this.
 */
export function canCopyRoutes(kernelRelease = release()): boolean {
  return isSince(6, 2, kernelRelease);
}

function isSince(wantedMajor: number, wantedMinor: number, kernelRelease: string): boolean {
  const [major = 0, minor = 0] = kernelRelease.split('.').map((part) => Number.parseInt(part, 10));
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}
