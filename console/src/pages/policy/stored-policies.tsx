import { useSignal } from '@preact/signals';
import type { Schemas } from '../../api/client.js';
import type { PolicyChange } from '../../charts/draft.chart.js';
import { session } from '../../node.js';
import { addressOf } from '../../router.js';
import { Empty, Panel } from '../../ui/parts.js';
import { TableHead } from '../../ui/table-head.js';
import { Ago } from '../../ui/time.js';
import { ChangeReview } from './change-review.js';

type PolicyRecord = Schemas['PolicyRecord'];
type Props = {
  readonly items: readonly PolicyRecord[];
  readonly shown: PolicyRecord | null;
  readonly changed: () => void;
};

export const etagOf = ({ id, revision }: PolicyRecord): string => `"${id}.${revision}"`;

/** A list of all stored policies, with buttons to open, activate or delete each. */
export function StoredPolicies({ items, shown, changed }: Props) {
  const change = useSignal<PolicyChange | null>(null);
  const mayWrite = session.mayWrite.value;
  if (change.value !== null)
    return (
      <ChangeReview
        change={change.value}
        record={items.find(({ id }) => id === change.value?.id) ?? null}
        onClose={() => {
          change.value = null;
          changed();
        }}
      />
    );
  const begin = (kind: 'activate' | 'delete', record: PolicyRecord) => () => {
    change.value = { kind, id: record.id, etag: etagOf(record) };
  };
  return (
    <Panel
      title="Stored policies"
      actions={
        <a class="button" href={addressOf('policy', { id: 'new' })}>
          New policy
        </a>
      }
    >
      {items.length === 0 ? (
        <Empty>No policy is stored: `policy.fallback` of the configuration decides for every packet.</Empty>
      ) : (
        <div class="scroll">
          <table>
            <TableHead columns={['Name', 'State', 'Mode', 'Revision', 'Written', { hidden: 'Actions' }]} />
            <tbody>
              {items.map((record) => (
                <tr key={record.id}>
                  <th scope="row">
                    <a
                      href={addressOf('policy', { id: record.id })}
                      aria-current={record.id === shown?.id ? 'true' : undefined}
                    >
                      {record.name ?? 'unnamed'}
                    </a>
                  </th>
                  <td>{record.active ? <strong>in force</strong> : 'stored'}</td>
                  <td>{record.mode}</td>
                  <td>{record.revision}</td>
                  <td>
                    {record.updated_by}, <Ago at={record.updated_at} />
                  </td>
                  <td class="number">
                    <span class="actions">
                      {!record.active && (
                        <button type="button" disabled={!mayWrite} onClick={begin('activate', record)}>
                          Put in force…
                        </button>
                      )}
                      <button type="button" disabled={!mayWrite} onClick={begin('delete', record)}>
                        Delete…
                      </button>
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p class="muted">
        At most one policy is in force. To take a policy out of force, put another one in force, delete it, or write it
        with the mode <code>disabled</code>. {!mayWrite && 'This session may only read.'}
      </p>
    </Panel>
  );
}
