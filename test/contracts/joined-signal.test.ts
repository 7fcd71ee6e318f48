import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { withJoinedSignal } from '#contracts/joined-signal.js';

describe('joined signal', () => {
  it.each([0, 1])(
    'an AbortSignal that joins two source signals aborts with the reason of the source with index %i, and leaves no listener',
    async (index) => {
      const sources = [new AbortController(), new AbortController()];
      const signals = sources.map(({ signal }) => signal);
      const seen = await withJoinedSignal(signals, async (joined) => {
        const before = joined.aborted;
        sources[index]?.abort('reason');
        return [before, joined.aborted, joined.reason];
      });
      expect(seen).toEqual([false, true, 'reason']);
      expect(signals.flatMap((signal) => getEventListeners(signal, 'abort'))).toEqual([]);
    },
  );

  it('an AbortSignal that joins several source signals is aborted from the start if one of the sources is aborted', async () => {
    const seen = await withJoinedSignal([new AbortController().signal, AbortSignal.abort('early')], async (joined) => [
      joined.aborted,
      joined.reason,
    ]);
    expect(seen).toEqual([true, 'early']);
  });
});
