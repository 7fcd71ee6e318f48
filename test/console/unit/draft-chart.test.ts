import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Actor, createActor, fromPromise } from 'xstate';
import { ApiFailure, type Problem } from '../../../console/src/api/client.js';
import {
  type Applied,
  draftChart,
  type Judgement,
  type PendingReport,
  type PolicyChange,
} from '../../../console/src/charts/draft.chart.js';

const change = (text: string): PolicyChange => ({ kind: 'text', id: 'p', text, activate: null, etag: '"p.1"' });
const TERMS = { confirmWithin: 60, comment: '', overrides: [] };
const SOUND = { isSound: true, result: {}, warnings: [] } as unknown as Judgement;
const FAULTY: Judgement = { isSound: false, problems: [{ pointer: '', message: 'faulty' }] };

/** A draft whose requests the test answers. */
function createDraft(begin: 'clean' | 'edited' | 'review' = 'clean') {
  const asked: { readonly text: string; readonly signal: AbortSignal; answer(judgement: Judgement | Error): void }[] =
    [];
  let written: (outcome: Applied | Error) => void = () => {};
  const draft = createActor(
    draftChart.provide({
      actors: {
        judge: fromPromise(
          ({ input, signal }) =>
            new Promise<Judgement>((resolve, reject) => {
              asked.push({
                text: input.kind === 'text' ? input.text.toString() : input.kind,
                signal,
                answer: (judgement) => (judgement instanceof Error ? reject(judgement) : resolve(judgement)),
              });
            }),
        ),
        apply: fromPromise(
          () =>
            new Promise<Applied>((resolve, reject) => {
              written = (outcome) => (outcome instanceof Error ? reject(outcome) : resolve(outcome));
            }),
        ),
      },
    }),
    { input: { change: change('stored'), begin } },
  ).start();
  return { draft, asked, write: (outcome: Applied | Error) => written(outcome) };
}

const report = (generation: number, pending: number | null, reverted: number | null): PendingReport =>
  ({
    generation,
    pending: {
      pending: pending === null ? null : { generation: pending },
      reverted: reverted === null ? null : { generation: reverted, reason: 'not confirmed in time' },
    },
  }) as unknown as PendingReport;

const stateOf = (draft: Actor<typeof draftChart>) => draft.getSnapshot().value;

describe('the draft of a policy', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());
  const settled = () => vi.advanceTimersByTimeAsync(0);

  async function reviewed() {
    const made = createDraft();
    made.draft.send({ type: 'edited', change: change('new') });
    await vi.advanceTimersByTimeAsync(500);
    made.asked.at(-1)?.answer(SOUND);
    await settled();
    made.draft.send({ type: 'review_requested' });
    return made;
  }

  async function awaiting() {
    const made = await reviewed();
    made.draft.send({ type: 'apply_requested', terms: TERMS });
    made.write({ generation: 7, revision: 2, at: 0 });
    await settled();
    return made;
  }

  it('is checked by the node after a pause in typing, and an edit cancels the check of the earlier text', async () => {
    const { draft, asked } = createDraft();
    draft.send({ type: 'edited', change: change('a') });
    draft.send({ type: 'edited', change: change('ab') });
    expect(stateOf(draft)).toBe('editing');
    await vi.advanceTimersByTimeAsync(500);
    expect(asked.map(({ text }) => text)).toEqual(['stored', 'ab']);
    draft.send({ type: 'edited', change: change('abc') });
    expect(asked[1]?.signal.aborted).toBe(true);
    asked[1]?.answer(SOUND);
    await vi.advanceTimersByTimeAsync(500);
    expect(stateOf(draft)).toBe('judging');
    asked[2]?.answer(FAULTY);
    await settled();
    expect(stateOf(draft)).toBe('faulty');
    draft.send({ type: 'review_requested' });
    expect(stateOf(draft)).toBe('faulty');
  });

  it('is checked again and again while the node does not respond', async () => {
    const { draft, asked } = createDraft('edited');
    await vi.advanceTimersByTimeAsync(500);
    asked[0]?.answer(new Error('no response'));
    await settled();
    expect(stateOf(draft)).toBe('unanswered');
    await vi.advanceTimersByTimeAsync(4_000);
    asked[1]?.answer(SOUND);
    await settled();
    expect(stateOf(draft)).toBe('sound');
  });

  it('stays in review if its text is stored again as a newer revision, and its write then refers to that revision', async () => {
    const { draft } = await reviewed();
    draft.send({ type: 'rebased', etag: '"p.3"' });
    expect(stateOf(draft)).toBe('reviewing');
    expect(draft.getSnapshot().context.change).toEqual({ ...change('new'), etag: '"p.3"' });
  });

  it('waits for the confirmation after the change was applied, and is complete after the confirmation', async () => {
    const { draft } = await awaiting();
    expect(stateOf(draft)).toBe('awaiting_confirmation');
    // A report that was asked for before the write.
    draft.send({ type: 'reported', ...report(6, null, null) });
    draft.send({ type: 'reported', ...report(7, 7, null) });
    expect(stateOf(draft)).toBe('awaiting_confirmation');
    draft.send({ type: 'edited', change: change('during') });
    expect(stateOf(draft)).toBe('awaiting_confirmation');
    draft.send({ type: 'reported', ...report(8, null, null) });
    expect(stateOf(draft)).toBe('kept');
  });

  it('can be edited again after the node has reverted the change, and shows the reason of the node', async () => {
    const { draft } = await awaiting();
    draft.send({ type: 'reported', ...report(8, null, 7) });
    expect(stateOf(draft)).toBe('reverted');
    expect(draft.getSnapshot().context.revertReason).toBe('not confirmed in time');
    draft.send({ type: 'edited', change: change('new') });
    expect(stateOf(draft)).toBe('editing');
  });

  it('is complete at once if the change needs no confirmation, or if the policy in force stays the same', async () => {
    for (const [confirmWithin, generation] of [
      [null, 7],
      [60, null],
    ] as const) {
      const { draft, write } = await reviewed();
      draft.send({ type: 'apply_requested', terms: { ...TERMS, confirmWithin } });
      write({ generation, revision: 2, at: 0 });
      await settled();
      expect(stateOf(draft)).toBe('kept');
    }
  });

  it('shows a conflict if another client wrote the policy first, and shows the reason of any other refusal in the review', async () => {
    const failure = (status: number) => new ApiFailure(status, { detail: 'refused' } as Problem);
    const { draft, write } = await reviewed();
    draft.send({ type: 'apply_requested', terms: TERMS });
    draft.send({ type: 'discarded', change: change('stored') });
    expect(stateOf(draft)).toBe('applying');
    write(failure(409));
    await settled();
    expect(stateOf(draft)).toBe('reviewing');
    expect(String(draft.getSnapshot().context.failure)).toContain('refused');
    draft.send({ type: 'apply_requested', terms: TERMS });
    write(failure(412));
    await settled();
    expect(stateOf(draft)).toBe('conflicting');
    draft.send({ type: 'edited', change: change('on the newer text') });
    expect(stateOf(draft)).toBe('editing');
  });

  it('can begin with the review of a change that has no text, such as an activation', async () => {
    const { draft, asked } = createDraft('review');
    expect(stateOf(draft)).toBe('preparing');
    asked[0]?.answer(SOUND);
    await settled();
    expect(stateOf(draft)).toBe('reviewing');
  });
});
