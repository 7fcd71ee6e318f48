import { release } from 'node:os';

const SKIP_NEIGH = 4;

/** A route is all that is asked for; kernels before 6.3 look for the neighbour too. */
export function fibFlags(kernelRelease = release()): number {
  return isSince(6, 3, kernelRelease) ? SKIP_NEIGH : 0;
}

/** Whether a program can see the routes' count of changes. */
export function canCopyRoutes(kernelRelease = release()): boolean {
  return isSince(6, 2, kernelRelease);
}

function isSince(wantedMajor: number, wantedMinor: number, kernelRelease: string): boolean {
  const [major = 0, minor = 0] = kernelRelease.split('.').map((part) => Number.parseInt(part, 10));
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}
