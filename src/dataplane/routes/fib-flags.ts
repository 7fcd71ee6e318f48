import { release } from 'node:os';

const SKIP_NEIGH = 4;

/** Flags for a lookup that needs the route only. Kernels before 6.3 cannot skip the neighbour. */
export function fibFlags(kernelRelease = release()): number {
  return isSince(6, 3, kernelRelease) ? SKIP_NEIGH : 0;
}

/** Whether a BPF program can read the kernel's counter of route changes. */
export function canCopyRoutes(kernelRelease = release()): boolean {
  return isSince(6, 2, kernelRelease);
}

function isSince(wantedMajor: number, wantedMinor: number, kernelRelease: string): boolean {
  const [major = 0, minor = 0] = kernelRelease.split('.').map((part) => Number.parseInt(part, 10));
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}
