import type { Adoption } from '#contracts/datapath/datapath.js';
import { imageSha256 } from '#dataplane/activate/image-digest.js';
import type { UnsampledPolicy } from '#policies/write/compiled-policy.js';
import type { ServicePlane } from '#service-plane/service-plane.js';

/**
 * Returns a function that gives the stored policy to the service plane (TLS and HTTP inspection) before the
 * datapath is open. It does so only if the kernel enforces the same policy, with the same generation and
 * image. `found` is the policy that the kernel enforces when the process starts. Only the first call has an
 * effect, because the kernel may enforce another policy later.
 */
export function createWarmStart(
  plane: Pick<ServicePlane, 'accept'>,
  found: Promise<Adoption['inForce']>,
): (stored: UnsampledPolicy) => Promise<void> {
  let isFirst = true;
  return async ({ program, inForce: { generation, inspection } }) => {
    if (!isFirst) return;
    isFirst = false;
    const inForce = await found;
    // Compare the image too: with another data folder or other settings, the same generation can denote
    // another policy.
    if (inForce?.generation !== generation || inForce.imageSha256 !== imageSha256(program)) return;
    plane.accept(inspection);
  };
}
