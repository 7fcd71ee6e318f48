import { type Signal, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { Schemas } from '../api/client.js';
import { endPendingChange } from '../api/pending-change.js';
import { clockTime, span } from '../format.js';
import { node, session } from '../node.js';
import { addressOf, path } from '../router.js';
import { useAction } from './action.js';
import { Failure, StateMark } from './parts.js';
import { Lasting, now } from './time.js';

/** A sentence on each page: whether the node enforces its policy, and since when. */
export function StatusBar() {
  const report = node.report.value;
  if (report === null) return <div class="status" aria-busy="true" />;
  const { readiness, stats } = report;
  const failing = readiness.checks.filter(({ ok }) => !ok);
  const since = readiness.in_force_since;
  return (
    <div class={`status ${failing.length === 0 ? '' : 'bad'}`} role="status">
      <StateMark ok={failing.length === 0} word={failing.length === 0 ? 'ready' : 'not ready'} />
      {stats.generation === 0 ? (
        <strong>No policy is in force</strong>
      ) : (
        <span>
          <strong>Enforcing</strong> generation {stats.generation}
          {since !== null && (
            <span class="muted">
              {' '}
              for <Lasting at={since} />
            </span>
          )}
        </span>
      )}
      {failing.map(({ name, detail }) => (
        <span key={name} class="status-fault">
          {detail}
        </span>
      ))}
    </div>
  );
}

/**
 * A bar that reports that the node does not respond, and what the kernel does in this time. The page keeps
 * its data.
 */
export function SilentBar() {
  if (!node.isSilent.value) return null;
  const at = node.reportedAt.value;
  return (
    <div class="bar bad" role="alert">
      <strong>The node does not respond</strong>
      {at !== null && <> since {clockTime(at)}. This page shows the state of that time.</>} The kernel continues to
      enforce the last policy, also without the process. Names that are learned now, and inspected connections, need the
      process.
    </div>
  );
}

/** A bar about an unconfirmed policy change, with the time that is left; later with the outcome. */
export function PendingBar() {
  const { pending = null, reverted = null } = node.report.value?.pending ?? {};
  const last = useRef<Pending | null>(null);
  const ended = useSignal<string | null>(null);
  useEffect(() => {
    const before = last.current;
    last.current = pending;
    if (pending !== null) ended.value = null;
    else if (before !== null)
      ended.value =
        reverted?.generation === before.generation
          ? `The change of ${before.written_by} went back: ${reverted.reason}. The former policy is in force again.`
          : `The change of ${before.written_by} was kept.`;
  }, [pending?.generation ?? null]);
  // Show no bar on the page Policy, which shows the change itself.
  if (pending === null)
    return ended.value === null || path.value === 'policy' ? null : <EndedBar text={ended.value} end={ended} />;
  if (pending.kind === 'confirm') return <ConfirmBar pending={pending} />;
  // Show no bar on the page Nodes, which shows the roll-out in detail.
  return path.value === 'nodes' ? null : <RolloutBar pending={pending} />;
}

function EndedBar({ text, end }: { readonly text: string; readonly end: Signal<string | null> }) {
  return (
    <div class="bar" role="status">
      <span>{text}</span>
      <button
        type="button"
        onClick={() => {
          end.value = null;
        }}
      >
        Dismiss
      </button>
    </div>
  );
}

type Pending = NonNullable<Schemas['PendingChange']['pending']>;
const secondsLeft = ({ ends_at }: Pending): number => (Date.parse(ends_at) - now.value) / 1_000;

function RolloutBar({ pending }: { readonly pending: Pending }) {
  const left = secondsLeft(pending);
  return (
    <div class="bar pending" role="status">
      <span>
        <strong>Generation {pending.generation} is being rolled out.</strong> {pending.share} % of the nodes enforce it
        first.{' '}
        {left > 0 ? (
          <>
            All nodes follow in <strong class="countdown">{span(left)}</strong>.
          </>
        ) : (
          'All nodes follow now.'
        )}{' '}
        Until then, the cluster accepts no other write of the policy.
      </span>
      <span class="actions">
        <a class="button" href={addressOf('nodes')}>
          Show the roll-out
        </a>
      </span>
    </div>
  );
}

function ConfirmBar({ pending }: { readonly pending: Pending }) {
  const action = useAction();
  const mayWrite = session.mayWrite.value;
  const end = (outcome: 'confirm' | 'revert') => () =>
    void action.run(() => endPendingChange(outcome, pending.generation));
  const disabled = action.isBusy.value || !mayWrite;
  return (
    <div class="bar pending" role="status">
      <span>
        <strong>Generation {pending.generation} is not confirmed.</strong> {pending.written_by} wrote it. The node goes
        back to generation {pending.generation_before} in{' '}
        <strong class="countdown">{span(secondsLeft(pending))}</strong>.
      </span>
      <span class="actions">
        {!mayWrite && <span class="muted">This session may only read.</span>}
        <button type="button" class="primary" disabled={disabled} onClick={end('confirm')}>
          Keep it
        </button>
        <button type="button" disabled={disabled} onClick={end('revert')}>
          Go back now
        </button>
      </span>
      <Failure failure={action.failure.value} />
    </div>
  );
}
