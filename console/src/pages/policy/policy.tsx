import { useSignal } from '@preact/signals';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { addressOf, query } from '../../router.js';
import { Empty, Failure, StateMark } from '../../ui/parts.js';
import { Ago } from '../../ui/time.js';
import { Assertions } from './assertions.js';
import { History } from './history.js';
import { Lint } from './lint.js';
import { StoredPolicies } from './stored-policies.js';
import { PolicyTextTab } from './text-tab.js';
import '../../style/policy.css';

type PolicyRecord = Schemas['PolicyRecord'];

const VIEWS = [
  ['', 'Text'],
  ['history', 'History'],
  ['lint', 'Lint'],
  ['assertions', 'Assertions'],
] as const;

/**
 * The page Policy: shows the policy and the hits of its rules, and edits it with a preview of each change.
 */
export function Policy() {
  const policies = usePolled((signal) => bodyOf(api.GET('/api/v1/policies', { signal })), 4_000);
  const isListOpen = useSignal(false);
  const items = policies.data.value?.items;
  const wanted = query.value.get('id');
  const record =
    items?.find(({ id }) => id === wanted) ??
    (wanted === null ? (items?.find(({ active }) => active) ?? items?.[0]) : undefined) ??
    null;
  const view = query.value.get('view') ?? '';
  if (items === undefined)
    return (
      <>
        <h1>Policy</h1>
        <Failure failure={policies.failure.value} />
      </>
    );
  const id = wanted === null ? undefined : wanted;
  return (
    <>
      <h1>Policy</h1>
      <div class="policy-head">
        <RecordLine record={record} />
        <button
          type="button"
          aria-expanded={isListOpen.value}
          onClick={() => {
            isListOpen.value = !isListOpen.value;
          }}
        >
          {items.length === 1 ? '1 stored policy' : `${items.length} stored policies`}
        </button>
      </div>
      {isListOpen.value && <StoredPolicies items={items} shown={record} changed={policies.again} />}
      <nav class="tabs" aria-label="Views of the policy">
        {VIEWS.map(([name, title]) => (
          <a
            key={name}
            href={addressOf('policy', { id, view: name })}
            aria-current={view === name ? 'page' : undefined}
          >
            {title}
          </a>
        ))}
      </nav>
      {wanted !== null && wanted !== 'new' && record === null ? (
        <Empty>
          No policy with this id is stored. <a href={addressOf('policy')}>Show the policy in force.</a>
        </Empty>
      ) : view === 'history' ? (
        <History key={record?.id} record={record} />
      ) : view === 'lint' ? (
        <Lint key={record?.id} record={record} />
      ) : view === 'assertions' ? (
        <Assertions />
      ) : (
        <PolicyTextTab key={record?.id ?? 'new'} record={record} changed={policies.again} />
      )}
    </>
  );
}

/** Shows the name of the policy on the page, and whether the policy is in force. */
function RecordLine({ record }: { readonly record: PolicyRecord | null }) {
  if (record === null) return <p class="record-line">A policy that is not stored yet.</p>;
  const { name, active, mode, revision, updated_by: author, updated_at: at } = record;
  return (
    <p class="record-line">
      <strong>{name ?? 'unnamed'}</strong>
      <span class={`chip ${active ? 'good' : ''}`}>
        {active && (
          <span aria-hidden="true">
            <StateMark ok word="" />
          </span>
        )}
        {active ? 'in force' : 'stored, not in force'}
      </span>
      <span class={`chip ${mode === 'audit' ? 'warn' : ''}`}>{mode}</span>
      <span class="muted">
        revision {revision} by {author}, <Ago at={at} />
      </span>
    </p>
  );
}
