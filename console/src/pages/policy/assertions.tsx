import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { api, bodyOf, responseOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { session } from '../../node.js';
import { addressOf, go, query } from '../../router.js';
import { Empty, Failure, Panel } from '../../ui/parts.js';
import { sentence } from '../../ui/regions.js';
import { AssertionEditor } from './assertion-editor.js';
import { AssertionRegions } from './broken-assertions.js';
import { writeText } from './policy-text.js';

type Shown = Schemas['AssertionList']['items'][number];
const RESULTS: Readonly<Record<Shown['result'], string>> = { holds: 'holds', broken: 'broken', unknown: 'not known' };
const MARKS: Readonly<Record<Shown['result'], string>> = { holds: '✓', broken: '✕', unknown: '?' };

const TEMPLATE = `id: no-ssh
never: { from: [ 10.1.0.0/16 ], to: [ 10.9.0.0/24 ], ports: [ 22 ] }
`;

/** The tab Assertions: lists statements about flows that must stay true after each policy write. */
export function Assertions() {
  const list = usePolled(async (signal) => {
    const { data, headers } = await responseOf(api.GET('/api/v1/assertions', { signal }));
    return { ...data, etag: headers.get('etag') };
  }, 5_000);
  const proposed = useProposed();
  const editing = useSignal<string | null>(proposed === null ? null : '');
  const failure = useSignal<unknown>(null);
  const deleted = useSignal<{ readonly id: string; readonly before: Schemas['AssertionListWrite'] } | null>(null);
  const mayWrite = session.mayWrite.value;
  const shown = list.data.value;
  const ifMatch = () => (shown?.etag == null ? {} : { 'if-match': shown.etag });
  const done = () => {
    editing.value = null;
    if (proposed !== null) go(addressOf('policy', { view: 'assertions' }), { replace: true });
    list.again();
  };
  const run = async (act: () => Promise<unknown>) => {
    failure.value = null;
    try {
      await act();
    } catch (error) {
      failure.value = error;
    }
    list.again();
  };
  const remove = (id: string) =>
    run(async () => {
      const before = { assertions: (shown?.items ?? []).map(({ assertion }) => assertion) };
      const params = { path: { id }, header: ifMatch() } as never;
      await bodyOf(api.DELETE('/api/v1/assertions/{id}', { params }) as never);
      deleted.value = { id, before: before };
    });
  const undo = () =>
    run(async () => {
      if (deleted.value === null) return;
      const params = { header: ifMatch() } as never;
      await bodyOf(api.PUT('/api/v1/assertions', { params, body: deleted.value.before }));
      deleted.value = null;
    });
  return (
    <div class="stack">
      {deleted.value !== null && (
        <p class="notice" role="status">
          The assertion {deleted.value.id} was deleted.{' '}
          <button type="button" onClick={() => void undo()}>
            Undo
          </button>
        </p>
      )}
      <Panel
        title="Assertions"
        actions={
          <button
            type="button"
            disabled={!mayWrite || editing.value === ''}
            onClick={() => {
              editing.value = '';
            }}
          >
            Add an assertion
          </button>
        }
      >
        <p class="muted">
          The node checks them before each write that changes the policy in force, and refuses a write that breaks one.{' '}
          {!mayWrite && 'This session may only read.'}
        </p>
        <Failure failure={list.failure.value} />
        <Failure failure={failure.value} />
        {editing.value === '' && (
          <AssertionEditor text={proposed ?? TEMPLATE} id={null} etag={shown?.etag ?? null} onDone={done} />
        )}
        {shown !== null && shown.items.length === 0 && editing.value !== '' && (
          <Empty>
            No assertion is stored. Add one for what must never, or always, be possible, such as “no SSH from the office
            to the database”.
          </Empty>
        )}
        <ul class="regions">
          {shown?.items.map((each) => (
            <li key={each.id} class="region">
              <div class="assertion-line">
                <span class={`chip ${each.result === 'holds' ? 'good' : each.result === 'broken' ? 'bad' : 'warn'}`}>
                  <span aria-hidden="true">{MARKS[each.result]}</span> {RESULTS[each.result]}
                </span>
                <div class="revision-text">
                  <p>
                    <strong>{each.id}</strong> <code class="muted">{statementText(each.assertion)}</code>
                  </p>
                  {each.message !== '' && each.result !== 'holds' && <p>{sentence(each.message)}</p>}
                  <AssertionRegions regions={each.regions} omitted={each.regions_omitted} />
                </div>
                <span class="actions">
                  <button
                    type="button"
                    disabled={!mayWrite}
                    onClick={() => {
                      editing.value = each.id;
                    }}
                  >
                    Edit
                  </button>
                  <button type="button" disabled={!mayWrite} onClick={() => void remove(each.id)}>
                    Delete
                  </button>
                </span>
              </div>
              {editing.value === each.id && (
                <AssertionEditor text={writeText(each.assertion)} id={each.id} etag={shown.etag} onDone={done} />
              )}
            </li>
          ))}
        </ul>
      </Panel>
    </div>
  );
}

/** Returns the text of the assertion that a link to this page proposes; null if there is none. */
function useProposed(): string | null {
  const assertion = query.value.get('new');
  return useMemo(() => {
    if (assertion === null) return null;
    try {
      return writeText(JSON.parse(assertion));
    } catch {
      return null;
    }
  }, [assertion]);
}

/** Returns an assertion as text: "never from 10.1.0.0/16 to 10.9.0.0/24 ports 22". */
function statementText(assertion: Shown['assertion']): string {
  const { id: _, on_failure, judge, ...statements } = assertion as Readonly<Record<string, unknown>>;
  const words = Object.entries(statements).map(([kind, flows]) => `${kind.replaceAll('_', ' ')} ${valueText(flows)}`);
  return [
    ...words,
    ...(judge === 'enforced' ? ['(audited denies count)'] : []),
    ...(on_failure === 'warn' ? ['(only warns)'] : []),
  ].join(' ');
}

function valueText(value: unknown): string {
  if (Array.isArray(value)) return value.join(', ');
  if (typeof value !== 'object' || value === null) return String(value);
  return Object.entries(value)
    .map(([key, member]) => `${key} ${valueText(member)}`)
    .join(' ');
}
