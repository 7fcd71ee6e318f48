import { useEffect, useMemo } from 'preact/hooks';
import { fromPromise } from 'xstate';
import type { Schemas } from '../../api/client.js';
import { draftChart, type PolicyChange } from '../../charts/draft.chart.js';
import { started } from '../../charts/signal-of.js';
import { Failure, Panel } from '../../ui/parts.js';
import { AfterApply } from './after-apply.js';
import { apply, judge } from './policy-requests.js';
import { useReports } from './reports.js';
import { Review } from './review.js';

type Props = {
  readonly change: PolicyChange;
  readonly record: Schemas['PolicyRecord'] | null;
  readonly onClose: () => void;
};

const TITLES = {
  activate: 'Put this policy in force',
  delete: 'Delete this policy',
  rollback: 'Go back to this revision',
  text: 'Apply this text',
} as const;

/** A dialog to review and apply a change without an edited text: an activation, a deletion, or a rollback. */
export function ChangeReview({ change, record, onClose }: Props) {
  const { actor, snapshot } = useMemo(
    () =>
      started(
        draftChart.provide({
          actors: {
            judge: fromPromise(({ input, signal }) => judge(input, signal)),
            apply: fromPromise(({ input }) => apply(input.change, input.terms)),
          },
        }),
        { change, begin: 'review' },
      ),
    [change],
  );
  useEffect(() => () => void actor.stop(), [actor]);
  useReports(actor);
  const { value, context } = snapshot.value;
  const title = `${TITLES[change.kind]}${change.kind === 'rollback' ? `: ${change.revision}` : ''}${record?.name ? ` (${record.name})` : ''}`;
  if (value === 'awaiting_confirmation' || value === 'kept' || value === 'reverted')
    return <AfterApply state={value} context={context} onClose={onClose} />;
  if (context.judgement?.isSound === true && (value === 'reviewing' || value === 'applying' || value === 'preparing'))
    return (
      <Review
        title={title}
        context={context}
        record={record}
        isBusy={value !== 'reviewing'}
        onApply={(terms) => actor.send({ type: 'apply_requested', terms })}
        onClose={onClose}
      />
    );
  const isWaiting = value === 'preparing' || value === 'judging';
  return (
    <Panel
      title={title}
      actions={
        <button type="button" onClick={onClose}>
          Close
        </button>
      }
    >
      {isWaiting && <p aria-busy="true">The node tries the change…</p>}
      {context.judgement?.isSound === false &&
        context.judgement.problems.map(({ pointer, message }) => (
          <p key={`${pointer} ${message}`} class="failure" role="alert">
            {message} {pointer !== '' && <code>{pointer}</code>}
          </p>
        ))}
      <Failure failure={context.failure} />
    </Panel>
  );
}
