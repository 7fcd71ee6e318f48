import { useSignal } from '@preact/signals';

import { api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import type { PolicyChange } from '../../charts/draft.chart.js';
import { session } from '../../node.js';
import { addressOf, go } from '../../router.js';
import { inSlices } from '../../slices.js';
import { Empty, Failure, Panel } from '../../ui/parts.js';
import { PolicyDiffView } from '../../ui/policy-diff.js';
import { Ago } from '../../ui/time.js';
import { ChangeReview } from './change-review.js';
import { keepDraft } from './kept-drafts.js';
import { documentOf } from './policy-requests.js';
import { writeSteps } from './policy-text.js';
import { etagOf } from './stored-policies.js';

type PolicyRecord = Schemas['PolicyRecord'];
type Row = Schemas['PolicyHistory']['items'][number];
const PAGE = 50;

/** The tab History: lists the writes of the policy with their changes, and can restore each revision. */
export function History({ record }: { readonly record: PolicyRecord | null }) {
  const limit = useSignal(PAGE);
  const round = useSignal(0);
  const change = useSignal<PolicyChange | null>(null);
  const id = record?.id ?? '';
  const history = usePolled(
    async (signal) => {
      const params = { path: { id }, query: { limit: Math.min(limit.value, 500) } } as const;
      return id === '' ? null : bodyOf(api.GET('/api/v1/policies/{id}/history', { params, signal }));
    },
    null,
    `${id} ${limit.value} ${record?.revision} ${record?.active} ${round.value}`,
  );
  if (record === null) return <Empty>A policy that is not stored has no history.</Empty>;
  if (change.value !== null)
    return (
      <ChangeReview
        change={change.value}
        record={record}
        onClose={() => {
          change.value = null;
          round.value++;
        }}
      />
    );
  const rows = history.data.value?.items ?? [];
  return (
    <Panel>
      <Failure failure={history.failure.value} />
      {history.data.value === null && history.failure.value === null && <p aria-busy="true">…</p>}
      <ol class="history">
        {rows.map((row, at) => (
          <Revision
            key={row.revision}
            row={row}
            before={rows[at + 1]?.revision ?? (row.revision > 1 ? row.revision - 1 : null)}
            record={record}
            onRollback={() => {
              change.value = { kind: 'rollback', id, revision: row.revision, etag: etagOf(record) };
            }}
          />
        ))}
      </ol>
      {history.data.value?.next_cursor != null && (
        <button
          type="button"
          disabled={limit.value >= 500}
          onClick={() => {
            limit.value += PAGE * 3;
          }}
        >
          {limit.value >= 500 ? 'Older revisions: weir policy history' : 'Show older revisions'}
        </button>
      )}
    </Panel>
  );
}

type RevisionProps = {
  readonly row: Row;
  /** The number of the previous revision; null for the first one. */
  readonly before: number | null;
  readonly record: PolicyRecord;
  readonly onRollback: () => void;
};
type Shown = 'before' | 'now' | null;

function Revision({ row, before, record, onRollback }: RevisionProps) {
  const shown = useSignal<Shown>(null);
  const isLatest = row.revision === record.revision;
  const toggle = (what: Shown) => () => {
    shown.value = shown.value === what ? null : what;
  };
  const { id, revision } = row;
  return (
    <li class="revision">
      <div class="revision-line">
        <strong class="revision-number">{revision}</strong>
        <div class="revision-text">
          <p>
            {howText(row)} by <strong>{row.updated_by}</strong>, <Ago at={row.updated_at} />
            {isLatest && <span class="chip good">{record.active ? 'in force' : 'the newest'}</span>}
            {row.mode !== record.mode && <span class="chip">{row.mode}</span>}
          </p>
          {row.comment !== null && <p class="revision-comment">{row.comment}</p>}
          <p class="muted">
            {sizeText(row)}
            {row.generation !== null && `, generation ${row.generation}`}
            {row.overrides.length > 0 && `, broke on purpose: ${row.overrides.join(', ')}`}
          </p>
          {row.activated !== null && (
            <p class="muted">
              Put in force by {row.activated.by}, <Ago at={row.activated.at} />
              {row.activated.comment !== null && `: ${row.activated.comment}`}
            </p>
          )}
        </div>
        <span class="actions">
          <button type="button" aria-expanded={shown.value === 'before'} onClick={toggle('before')}>
            What changed
          </button>
          {!isLatest && (
            <>
              <button type="button" aria-expanded={shown.value === 'now'} onClick={toggle('now')}>
                Compare with now
              </button>
              <TakeText row={row} record={record} />
              <button
                type="button"
                disabled={!session.mayWrite.value}
                title={session.mayWrite.value ? undefined : 'This session may only read'}
                onClick={onRollback}
              >
                Go back to this…
              </button>
            </>
          )}
        </span>
      </div>
      {shown.value === 'before' && (
        <Difference
          title={before === null ? `What revision ${revision} allows` : `From revision ${before} to ${revision}`}
          from={before === null ? { policy: {} } : { id, revision: before }}
          to={{ id, revision }}
        />
      )}
      {shown.value === 'now' && (
        <Difference title={`From revision ${revision} to now`} from={{ id, revision }} to={{ id }} />
      )}
    </li>
  );
}

/** Loads the text of a revision into the editor as a draft. */
function TakeText({ row: { id, revision }, record }: { readonly row: Row; readonly record: PolicyRecord }) {
  const failure = useSignal<unknown>(null);
  const take = async () => {
    try {
      const params = { path: { id, revision: String(revision) } } as never;
      const stored = await bodyOf(api.GET('/api/v1/policies/{id}/history/{revision}', { params }));
      const text = await inSlices(writeSteps(documentOf(stored)));
      keepDraft(id, { text, etag: etagOf(record), revision: record.revision });
      go(addressOf('policy', { id }));
    } catch (error) {
      failure.value = error;
    }
  };
  return (
    <>
      <button type="button" onClick={() => void take()}>
        Open as a draft
      </button>
      <Failure failure={failure.value} />
    </>
  );
}

type DifferenceProps = {
  readonly title: string;
  readonly from: Schemas['PolicyReference'];
  readonly to: Schemas['PolicyReference'];
};

/** Shows the flows that differ between two policies. */
function Difference({ title, from, to }: DifferenceProps) {
  const diff = usePolled(
    (signal) => bodyOf(api.POST('/api/v1/policy/diff', { body: { from, to }, signal })),
    null,
    JSON.stringify([from, to]),
  );
  return (
    <div class="difference">
      <h3>{title}</h3>
      <Failure failure={diff.failure.value} />
      {diff.data.value === null ? (
        diff.failure.value === null && <p aria-busy="true">The node compares both policies…</p>
      ) : (
        <PolicyDiffView diff={diff.data.value} />
      )}
    </div>
  );
}

function howText({ via, source_group: group, of_revision: of }: Row): string {
  switch (via) {
    case 'write':
    case null:
      return 'Written';
    case 'group_write':
      return `Source group ${group ?? ''} written`;
    case 'file':
      return 'Read from policy.file';
    case 'rollback':
      return `Went back to revision ${of ?? '?'}`;
    case 'revert':
      return of === null ? 'Reverted' : `Reverted to revision ${of}`;
    case 'rollout':
      return 'Rolled out in stages';
  }
}

/** Returns the size of a change as text: "1 rule added, 2 rules changed". */
function sizeText({ size }: Pick<Row, 'size'>): string {
  if (size === null) return 'size of the change unknown';
  const parts = (['groups', 'rules'] as const).flatMap((what) =>
    (['added', 'changed', 'removed'] as const).flatMap((how) => {
      const count = size[what][how];
      const name = what === 'groups' ? 'source group' : 'rule';
      return count === 0 ? [] : [`${count} ${name}${count === 1 ? '' : 's'} ${how}`];
    }),
  );
  if (size.other) parts.push(parts.length === 0 ? 'mode, default or order changed' : 'and mode, default or order');
  return parts.length === 0 ? 'nothing in the text changed' : parts.join(', ');
}
