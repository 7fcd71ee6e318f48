import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { ContextFrom } from 'xstate';
import { api, bodyOf } from '../../api/client.js';
import type { draftChart } from '../../charts/draft.chart.js';
import { span } from '../../format.js';
import { node, session } from '../../node.js';
import { addressOf } from '../../router.js';
import { Failure, StateMark } from '../../ui/parts.js';
import { now } from '../../ui/time.js';

type Props = {
  readonly state: 'awaiting_confirmation' | 'kept' | 'reverted';
  readonly context: ContextFrom<typeof draftChart>;
  readonly onClose: () => void;
};

/**
 * Shows the time that is left to confirm an applied change, and later whether the change was kept or
 * reverted.
 */
export function AfterApply({ state, context, onClose }: Props) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    node.changed();
    heading.current?.focus();
  }, [state]);
  const { applied, revertReason, change } = context;
  const isStaged = context.terms?.rollout != null && applied?.generation != null;
  const generation = applied?.generation;
  return (
    <section class={`panel after-apply ${state}`} aria-labelledby="after-apply">
      <h2 id="after-apply" tabIndex={-1} ref={heading}>
        {state === 'awaiting_confirmation' ? (
          'In force. Is everything well?'
        ) : (
          <>
            <span aria-hidden="true">
              <StateMark ok={state === 'kept'} word="" />
            </span>{' '}
            {state === 'reverted'
              ? 'The node went back to the former policy'
              : change.kind === 'delete'
                ? 'Deleted'
                : isStaged
                  ? 'Rolled out to the first nodes'
                  : generation == null
                    ? 'Stored'
                    : change.kind === 'rollback'
                      ? `Back at revision ${change.revision}`
                      : 'Kept'}
          </>
        )}
      </h2>
      {state === 'awaiting_confirmation' && <Countdown context={context} />}
      {state === 'kept' && (
        <p role="status">
          {isStaged
            ? `The first nodes enforce generation ${generation}. All nodes follow unless one of these gets a fault; the page Nodes shows how they are, and ends the roll-out early.`
            : change.kind === 'delete'
              ? 'The policy is no longer stored. Its history stays, and a rollback creates it again.'
              : generation == null
                ? `Revision ${applied?.revision} is stored. The policy in force did not change.`
                : `${applied?.revision == null ? 'The policy' : `Revision ${applied.revision}`} is in force${
                    change.kind === 'rollback' ? `, with the text of revision ${change.revision}` : ''
                  }.`}
        </p>
      )}
      {state === 'reverted' && (
        <p role="status">
          {revertReason === null ? 'The change was not confirmed' : revertReason}. The former policy is in force again
          {change.kind === 'text' && ', and your draft is kept'}.
        </p>
      )}
      {state !== 'awaiting_confirmation' && (
        <p class="actions">
          <button type="button" class="primary" onClick={onClose}>
            {state === 'reverted' && change.kind === 'text' ? 'Back to the draft' : 'Back to the policy'}
          </button>
          <a
            class="button"
            href={addressOf('policy', { id: change.id ?? undefined, view: 'history' })}
            // The page may already have this URL, so the click must close this panel.
            onClick={onClose}
          >
            Show the history
          </a>
        </p>
      )}
    </section>
  );
}

function Countdown({ context: { applied, terms } }: Pick<Props, 'context'>) {
  const failure = useSignal<unknown>(null);
  const isBusy = useSignal(false);
  const pending = node.report.value?.pending.pending;
  const total = terms?.confirmWithin ?? 60;
  const endsAt =
    pending?.generation === applied?.generation && pending != null
      ? new Date(pending.ends_at).getTime()
      : (applied?.at ?? 0) + total * 1_000;
  const left = Math.max(0, (endsAt - now.value) / 1_000);
  const generation = applied?.generation ?? 0;
  const end = (action: 'confirm' | 'revert') => async () => {
    isBusy.value = true;
    failure.value = null;
    const params = { query: { generation } };
    try {
      await bodyOf(
        action === 'confirm'
          ? api.POST('/api/v1/policy/pending/confirm', { params })
          : api.POST('/api/v1/policy/pending/revert', { params }),
      );
    } catch (error) {
      failure.value = error;
    }
    isBusy.value = false;
    node.changed();
  };
  const disabled = isBusy.value || !session.mayWrite.value;
  return (
    <>
      <p>
        Test what must work now. Without your confirmation, the node goes back to the former policy in{' '}
        <strong class="countdown">{span(left)}</strong>, also if you close this page.
      </p>
      <progress max={total} value={left} aria-label="Time that is left to confirm" />
      <p class="actions">
        <button type="button" class="primary" disabled={disabled} onClick={end('confirm')}>
          Keep this change
        </button>
        <button type="button" disabled={disabled} onClick={end('revert')}>
          Go back to the former policy
        </button>
      </p>
      <Failure failure={failure.value} />
    </>
  );
}
