import type { Adoption } from '#contracts/datapath.js';
import { imageSha256 } from '#dataplane/activate/image-digest.js';
import type { UnsampledPolicy } from '#policies/write/compiled-policy.js';
import type { ServicePlane } from '#service-plane/service-plane.js';

/**
 * Returns a function that starts the service plane before the datapath is open. It must be called with the
 * stored policy at the start. If the kernel enforces a policy of the same generation and image, the service
 * plane decides by the stored one from then on. `found` is the policy that the kernel enforces. Later calls
 * do nothing: the kernel may enforce another policy then.
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
    // The generation is not enough: another data folder or setting can give it to another policy.
    if (inForce?.generation !== generation || inForce.imageSha256 !== imageSha256(program)) return;
    plane.accept(inspection);
  };
}
