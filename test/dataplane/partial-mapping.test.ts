import { afterEach, describe, expect, test, vi } from 'vitest';
import { FLOW_LAYOUTS } from '#dataplane/abi/flow.js';
import { FlowRenewal } from '#dataplane/flows/flow-renewal.js';
import { MappedFlows } from '#dataplane/flows/listing/mapped-flows.js';
import { libc } from '#libc/libc.js';
import { denyAll } from '#test/kernel/policies.js';
import { loadForTest } from './loaded.js';

const FAILED = 0xffff_ffff_ffff_ffffn;

afterEach(() => {
  vi.restoreAllMocks();
});

describe('a failed mapping of the flow table', () => {
  test.each([
    ['of its tags', 2],
    ['for flow listings', 2],
    ['for flow listings', 3],
  ])(
    'a failed memory mapping of the flow table (%s) leaves nothing mapped (call %i of mmap fails)',
    (purpose, failing) => {
      const kernel = loadForTest();
      const { object } = kernel;
      const mmap = libc.mmap.bind(libc);
      const munmap = libc.munmap.bind(libc);
      const mapped = new Set<unknown>();
      let calls = 0;
      vi.spyOn(libc, 'mmap').mockImplementation((...given) => {
        calls += 1;
        if (calls === failing) return FAILED;
        const place = mmap(...given);
        mapped.add(place);
        return place;
      });
      vi.spyOn(libc, 'munmap').mockImplementation((place, length) => {
        mapped.delete(place);
        return munmap(place, length);
      });
      const map =
        purpose === 'of its tags'
          ? () => new FlowRenewal(() => ({ ipv4: object, ipv6: null })).map()
          : () =>
              new MappedFlows(FLOW_LAYOUTS.ipv4, {
                flows: object.mapFd('flows'),
                tallies: object.mapFd('tallies'),
                rankHits: object.mapFd('rank_hits'),
              });
      expect(map).toThrow('into memory');
      expect([calls, mapped.size]).toEqual([failing, 0]);
      vi.restoreAllMocks();
      kernel.close();
    },
  );
});

describe('a flip', () => {
  test.each([0, 1, 2])(
    'a prepared (staged) policy is put in force after %i earlier policy changes although the kernel refuses each memory mapping',
    (earlier) => {
      const kernel = loadForTest();
      for (let generation = 0; generation < earlier; generation++) kernel.activate(denyAll, generation);
      kernel.stage(denyAll);
      const mmap = vi.spyOn(libc, 'mmap').mockReturnValue(FAILED);
      const { nextEpoch } = kernel.slots;
      expect(kernel.flip().epoch).toBe(nextEpoch);
      expect([kernel.slots.epoch, kernel.slots.enforced()?.generation, mmap.mock.calls]).toEqual([nextEpoch, 1, []]);
      vi.restoreAllMocks();
      kernel.close();
    },
  );
});
