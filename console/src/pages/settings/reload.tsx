import { useSignal } from '@preact/signals';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { useAction } from '../../ui/action.js';
import { Empty, Failure, Panel, StateMark } from '../../ui/parts.js';
import { Ago } from '../../ui/time.js';
import { WriteButton } from '../../ui/write.js';

const RESULTS: Readonly<Record<string, string>> = {
  refused: 'Refused: the file is not valid, and nothing was changed',
  rolled_back: 'Rolled back: a part could not apply its settings, and the former settings are in force',
  rollback_failed: 'A part lacks its former settings',
};

/**
 * Shows the last reload of the configuration file and the effect of the next one, with a button to reload.
 */
export function Reload() {
  const status = usePolled((signal) => bodyOf(api.GET('/api/v1/config/reload', { signal })), 15_000);
  const trial = useSignal<Schemas['ConfigReload'] | null>(null);
  const action = useAction();
  const reload = (isTrial: boolean) =>
    action.run(async () => {
      const query = isTrial ? { dry_run: true } : {};
      const report = await bodyOf(api.POST('/api/v1/config/reload', { params: { query } }));
      trial.value = isTrial ? report : null;
      status.again();
    });
  const last = status.data.value?.last_reload ?? null;
  return (
    <Panel
      title="Configuration file"
      actions={
        <>
          <WriteButton isBusy={action.isBusy.value} onClick={() => void reload(true)}>
            What would change?
          </WriteButton>
          <WriteButton isBusy={action.isBusy.value} onClick={() => void reload(false)}>
            Reload it
          </WriteButton>
        </>
      }
    >
      <Failure failure={action.failure.value ?? status.failure.value} />
      {trial.value !== null && (
        <div class="trial" role="status">
          <strong>
            {trial.value.applied.length === 0 ? 'A reload would change nothing now.' : 'A reload would apply:'}
          </strong>
          <Fields applied={trial.value.applied} waiting={trial.value.needs_restart} />
        </div>
      )}
      {status.data.value !== null && last === null && (
        <Empty>The file has not been reloaded since the node started. The signal SIGHUP does the same.</Empty>
      )}
      {last !== null && (
        <>
          <p>
            <StateMark ok={RESULTS[last.result] === undefined} word={last.result} />{' '}
            {RESULTS[last.result] ?? 'Reloaded'} <Ago at={last.at} /> by {last.by}
          </p>
          {last.detail !== null && <p class="failure">{last.detail}</p>}
          <Fields applied={last.applied} waiting={last.needs_restart} />
        </>
      )}
    </Panel>
  );
}

type FieldsProps = { readonly applied: readonly string[]; readonly waiting: readonly string[] };

function Fields({ applied, waiting }: FieldsProps) {
  return (
    <>
      {applied.length > 0 && <p class="mono">{applied.join(', ')}</p>}
      {waiting.length > 0 && (
        <p>
          Needs a restart of the node: <span class="mono">{waiting.join(', ')}</span>
        </p>
      )}
    </>
  );
}
