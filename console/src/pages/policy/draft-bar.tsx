import { ApiFailure, type Schemas } from '../../api/client.js';
import { full } from '../../format.js';
import { session } from '../../node.js';
import type { Draft } from './draft.js';

type Mode = Schemas['EnvelopeMode'];
type Props = {
  readonly draft: Draft;
  readonly record: Schemas['PolicyRecord'] | null;
  readonly onDiscard: () => void;
  readonly onMode: (mode: Mode) => void;
};

/** A bar with the result of the last check of the draft by the node, and buttons for the draft. */
export function DraftBar({ draft, record, onDiscard, onMode }: Props) {
  const isClean = draft.snapshot.value.matches('clean');
  const state = draft.snapshot.value.value;
  const isJudged = isClean || state === 'sound';
  const modes: readonly Mode[] = record?.form === 'singleton' ? ['enforce', 'audit'] : ['enforce', 'audit', 'disabled'];
  return (
    <div class="draft-bar">
      <StateOfDraft draft={draft} isClean={isClean} />
      <span class="muted">
        {isClean
          ? `The text of revision ${draft.origin.value.revision}`
          : draft.origin.value.revision === null
            ? 'A draft of a new policy'
            : `A draft, from revision ${draft.origin.value.revision}`}
      </span>
      <span class="actions">
        <label class="mode-choice">
          <span class="visually-hidden">Set the mode</span>
          <select
            value=""
            onChange={(event) => {
              onMode(event.currentTarget.value as Mode);
              event.currentTarget.value = '';
            }}
          >
            <option value="" disabled>
              Set the mode…
            </option>
            {modes.map((mode) => (
              <option key={mode} value={mode}>
                {record?.form === 'singleton' ? `${mode}, all groups` : mode}
              </option>
            ))}
          </select>
        </label>
        <button type="button" disabled={isClean} onClick={onDiscard}>
          Discard
        </button>
        <button
          type="button"
          class="primary"
          disabled={isClean || !(isJudged || state === 'editing' || state === 'judging' || state === 'unanswered')}
          title={session.mayWrite.value ? undefined : 'This session may only read: it can review, but not apply.'}
          onClick={() => draft.actor.send({ type: 'review_requested' })}
        >
          {state === 'preparing' ? 'The node tries it…' : 'Review and apply…'}
        </button>
      </span>
    </div>
  );
}

function StateOfDraft({ draft, isClean }: { readonly draft: Draft; readonly isClean: boolean }) {
  const { value: state, context } = draft.snapshot.value;
  const { judgement } = context;
  if (state === 'editing' || state === 'judging' || state === 'preparing')
    return (
      <span class="chip" role="status">
        the node checks…
      </span>
    );
  if (state === 'unanswered')
    return (
      <span class="chip bad" role="status">
        {context.failure instanceof ApiFailure ? 'not checked' : 'not checked: the node does not answer'}
      </span>
    );
  if (judgement === null) return <span class="chip">{isClean ? 'stored' : ''}</span>;
  if (!judgement.isSound) {
    const { length } = judgement.problems;
    return (
      <span class="chip bad" role="status">
        {length === 1 ? '1 problem' : `${full(length)} problems`}
      </span>
    );
  }
  const classes = judgement.result.proof?.classes ?? null;
  return (
    <span class="chip good" role="status">
      valid{classes !== null && `, ${full(classes)} packet classes proved`}
    </span>
  );
}
