import { release } from 'node:os';

const SKIP_NEIGH = 4;

/** A route is all that is asked for; kernels before 6.3 look for the neighbour too. */
export function fibFlags(kernelRelease = release()): number {
  const [major = 0, minor = 0] = kernelRelease.split('.').map((part) => Number.parseInt(part, 10));
  return major > 6 || (major === 6 && minor >= 3) ? SKIP_NEIGH : 0;
}
