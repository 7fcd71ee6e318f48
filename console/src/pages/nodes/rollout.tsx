import type { Schemas } from '../../api/client.js';
import { endPendingChange } from '../../api/pending-change.js';
import { span } from '../../format.js';
import { useAction } from '../../ui/action.js';
import { Failure, Panel, StateMark } from '../../ui/parts.js';
import { Ago, now } from '../../ui/time.js';
import { WriteButton } from '../../ui/write.js';

/**
 * Shows a roll-out in progress: the nodes that enforce the change first, their health, and the time at which
 * all nodes get the change.
 */
export function Rollout({ pending: change }: { readonly pending: Schemas['PendingChange'] | null }) {
  const action = useAction();
  const pending = change?.pending ?? null;
  const reverted = change?.reverted ?? null;
  if (pending === null || pending.kind !== 'rollout')
    return reverted === null ? null : (
      <Panel title="The last change was reverted">
        <p>
          Generation {reverted.generation} went back <Ago at={reverted.reverted_at} />: {reverted.reason}
        </p>
      </Panel>
    );
  const end = (outcome: 'confirm' | 'revert') => () =>
    void action.run(() => endPendingChange(outcome, pending.generation));
  const left = (Date.parse(pending.ends_at) - now.value) / 1_000;
  const whole = (Date.parse(pending.ends_at) - Date.parse(pending.written_at)) / 1_000;
  return (
    <Panel
      title={`Roll-out of generation ${pending.generation}`}
      actions={
        <>
          <WriteButton primary isBusy={action.isBusy.value} onClick={end('confirm')}>
            All nodes now
          </WriteButton>
          <WriteButton isBusy={action.isBusy.value} onClick={end('revert')}>
            Go back to {pending.generation_before}
          </WriteButton>
        </>
      }
    >
      <p>
        {pending.written_by} wrote it <Ago at={pending.written_at} />. {pending.share} % of the nodes enforce it first.{' '}
        {left > 0 ? (
          <>
            All nodes follow in <strong>{span(left)}</strong>, unless one of these has a fault.
          </>
        ) : (
          'All nodes follow now.'
        )}
      </p>
      <progress max={whole} value={Math.min(whole, Math.max(0, whole - left))} aria-label="Time of the roll-out" />
      {pending.nodes === null ? (
        <p class="muted">The store cannot be reached, so the health of these nodes is not known.</p>
      ) : (
        <ul class="plain-list">
          {pending.nodes.map(({ id, healthy, fault }) => (
            <li key={id}>
              <span class={`word ${healthy ? '' : 'is-deny'}`}>
                <StateMark ok={healthy} word="" /> <strong>{id}</strong> {healthy ? 'well' : 'has a fault:'}
              </span>{' '}
              {fault}
            </li>
          ))}
        </ul>
      )}
      <Failure failure={action.failure.value} />
    </Panel>
  );
}
