import { useSignal } from '@preact/signals';
import { api, bodyOf } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { full } from '../../format.js';
import { addressOf, go, query } from '../../router.js';
import { Empty, Failure, Panel } from '../../ui/parts.js';
import { TableHead } from '../../ui/table-head.js';
import { TextField } from '../../ui/text-field.js';

const PAGE = 1_000;
const ROWS_SHOWN = 200;

/** Shows the pods and nodes that the Kubernetes selectors of a source group select at present. */
export function Members() {
  const policies = usePolled((signal) => bodyOf(api.GET('/api/v1/policies', { signal })), 5_000);
  const policy = policies.data.value?.items.find(({ active }) => active);
  const groups = usePolled(
    async (signal) => {
      if (policy === undefined) return [];
      const params = { path: { id: policy.id } };
      const stored = await bodyOf(api.GET('/api/v1/policies/{id}', { params, signal }));
      return (stored.policy.source_groups ?? []).filter(({ sources }) => (sources.kubernetes ?? []).length > 0);
    },
    null,
    `${policy?.id} ${policy?.revision}`,
  );
  const ids = groups.data.value?.map(({ id }) => id) ?? [];
  const group = query.value.get('group') ?? ids[0];
  return (
    <Panel title="Members of a group">
      <Failure failure={policies.failure.value ?? groups.failure.value} />
      {group === undefined || policy === undefined ? (
        <Empty>No source group of the active policy has a Kubernetes selector.</Empty>
      ) : (
        <>
          <div class="form-row">
            <label class="field">
              Source group
              <select
                value={group}
                onChange={(event) =>
                  go(addressOf('integrations', { group: event.currentTarget.value }), { replace: true })
                }
              >
                {[...new Set([group, ...ids])].map((id) => (
                  <option key={id}>{id}</option>
                ))}
              </select>
            </label>
          </div>
          <List key={group} policy={policy.id} group={group} />
        </>
      )}
    </Panel>
  );
}

function List({ policy, group }: { readonly policy: string; readonly group: string }) {
  const words = useSignal('');
  const members = usePolled(
    (signal) =>
      bodyOf(
        api.GET('/api/v1/policies/{id}/source-groups/{group_id}/members', {
          params: { path: { id: policy, group_id: group }, query: { limit: PAGE } },
          signal,
        }),
      ),
    5_000,
    `${policy} ${group}`,
  );
  const shown = members.data.value;
  const rows = [
    ...(shown?.networks.map(({ cidr, ...owner }) => ({ place: cidr, ...owner })) ?? []),
    ...(shown?.items.map(({ address, ...owner }) => ({ place: address, ...owner })) ?? []),
  ];
  const found = rows.filter((row) => {
    const text = Object.values(row).join(' ').toLowerCase();
    return words.value
      .toLowerCase()
      .split(/\s+/)
      .every((word) => text.includes(word));
  });
  return (
    <>
      <Failure failure={members.failure.value} />
      <TextField isWide isSearch label="Search by address, namespace or name" text={words} />
      {shown !== null && (
        <p class="muted" role="status">
          {full(found.length)} of {full(shown.total + shown.networks.length)} members
          {shown.next !== null && `; the search reads the first ${full(PAGE)} addresses`}.
        </p>
      )}
      {found.length > 0 && (
        <div class="scroll">
          <table>
            <TableHead columns={['Address', 'Owner', 'Namespace', 'Integration']} />
            <tbody>
              {found.slice(0, ROWS_SHOWN).map(({ place, kind, name, namespace, integration }) => (
                <tr key={`${place} ${name}`}>
                  <td class="mono">{place}</td>
                  <td>
                    {kind} <strong>{name}</strong>
                  </td>
                  <td>{namespace ?? '–'}</td>
                  <td>{integration}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {shown !== null && rows.length === 0 && <Empty>The selectors of this group select nobody at present.</Empty>}
    </>
  );
}
