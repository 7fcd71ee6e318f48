import { describe, expect, test } from 'vitest';
import { createWarmStart } from '#actors/warm-start.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';
import { imageSha256 } from '#dataplane/activate/image-digest.js';
import { fallbackPolicy } from '#policies/write/compiled-policy.js';

const stored = fallbackPolicy({ fallback: 'deny', ipv6: false }, 7);
const enforced = { generation: 7, imageSha256: imageSha256(stored.program), sinceMs: null };

async function accepted(found: typeof enforced | null): Promise<InspectionImage[]> {
  const seen: InspectionImage[] = [];
  await createWarmStart({ accept: (inspection) => seen.push(inspection) }, Promise.resolve(found))(stored);
  return seen;
}

describe('the service plane before the datapath is open', () => {
  test('the service plane (TLS and HTTP inspection) accepts connections by the stored policy before the datapath is open, if the kernel enforces that policy', async () => {
    expect(await accepted(enforced)).toEqual([stored.inForce.inspection]);
  });

  test.each([
    ['no policy', null],
    ['another generation', { ...enforced, generation: 8 }],
    [
      'another policy with this generation',
      { ...enforced, imageSha256: imageSha256(fallbackPolicy({ fallback: 'allow', ipv6: false }, 7).program) },
    ],
  ])(
    'the service plane accepts no connections before the datapath is open if the kernel enforces something other than the stored policy: %s',
    async (_, found) => {
      expect(await accepted(found)).toEqual([]);
    },
  );
});
