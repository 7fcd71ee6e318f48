import { useSignal } from '@preact/signals';
import { api, bodyOf } from '../api/client.js';
import { clockTime, span } from '../format.js';
import { node, session } from '../node.js';
import { Failure, StateMark } from './parts.js';
import { Lasting, now } from './time.js';

/** One sentence on every page: whether the node enforces its policy, and since when. */
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

/** Says that the node does not respond, and what the kernel does meanwhile. The data of the page stays. */
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

/** The change that goes back by itself unless a person confirms it, with the time that is left. */
export function PendingBar() {
  const failure = useSignal<unknown>(null);
  const isBusy = useSignal(false);
  const pending = node.report.value?.pending.pending ?? null;
  if (pending === null || pending.kind !== 'confirm') return null;
  const mayWrite = session.mayWrite.value;
  const left = (new Date(pending.ends_at).getTime() - now.value) / 1_000;
  const end = (action: 'confirm' | 'revert') => async () => {
    isBusy.value = true;
    failure.value = null;
    try {
      await bodyOf(
        action === 'confirm' ? api.POST('/api/v1/policy/pending/confirm') : api.POST('/api/v1/policy/pending/revert'),
      );
      node.changed();
    } catch (error) {
      failure.value = error;
    }
    isBusy.value = false;
  };
  return (
    <div class="bar pending" role="status">
      <span>
        <strong>Generation {pending.generation} is not confirmed.</strong> {pending.written_by} wrote it. The node goes
        back to generation {pending.generation_before} in <strong class="countdown">{span(left)}</strong>.
      </span>
      <span class="actions">
        {!mayWrite && <span class="muted">This session may only read.</span>}
        <button type="button" class="primary" disabled={isBusy.value || !mayWrite} onClick={end('confirm')}>
          Keep it
        </button>
        <button type="button" disabled={isBusy.value || !mayWrite} onClick={end('revert')}>
          Go back now
        </button>
      </span>
      <Failure failure={failure.value} />
    </div>
  );
}
