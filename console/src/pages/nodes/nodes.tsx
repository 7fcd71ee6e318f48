import { useSignal } from '@preact/signals';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { full } from '../../format.js';
import { node } from '../../node.js';
import { useAction } from '../../ui/action.js';
import { Empty, Failure, Panel, StateMark } from '../../ui/parts.js';
import { TableHead } from '../../ui/table-head.js';
import { Ago, Lasting } from '../../ui/time.js';
import { NamedConfirm, ReadOnlyNote, ShownOnce, WriteButton } from '../../ui/write.js';
import { CHECKS } from '../overview.js';
import { Rollout } from './rollout.js';

type Cluster = Schemas['Cluster'];
type ClusterNode = Schemas['ClusterNode'];

/**
 * The pause between two requests. A request about a node that does not respond takes 1.5 s, and the page must
 * show the failure within 5 s.
 */
const POLL_MS = 2_000;

/**
 * The page Nodes: shows the health of each node of the cluster, and whether it enforces the newest policy.
 */
export function Nodes() {
  const cluster = usePolled((signal) => bodyOf(api.GET('/api/v1/cluster', { signal })), POLL_MS);
  const shown = cluster.data.value;
  return (
    <>
      <h1>Nodes</h1>
      <Failure failure={cluster.failure.value} />
      {shown !== null &&
        (shown.enabled ? <OfCluster cluster={shown} again={cluster.again} /> : <Alone cluster={shown} />)}
    </>
  );
}

function Alone({ cluster }: { readonly cluster: Cluster }) {
  return (
    <div class="columns">
      <Panel title="This node is alone">
        <p>
          <strong>{cluster.node_id}</strong> enforces generation {full(cluster.generation)} by itself. In a cluster,
          nodes share policies, integrations and API tokens, and each keeps its own copy: they enforce also while the
          store is away.
        </p>
        <h3>Make a cluster</h3>
        <ol>
          <li>Run etcd 3.4 or later, with three or five members and TLS, and a user for Weir.</li>
          <li>
            Add the section <code>cluster</code> to the configuration of each node, and restart it:
            <pre class="code wrap">{`node: { id: ${cluster.node_id} }
cluster:
  etcd:
    endpoints: ["https://10.0.0.1:2379"]
    tls: { ca: /etc/weir/etcd-ca.pem, cert: /etc/weir/weir.pem, key: /etc/weir/weir.key }
  peer: { listen: "10.0.1.1:7443", advertise: "10.0.1.1:7443" }
  seal_key_file: /etc/weir/seal.key`}</pre>
          </li>
          <li>
            On one node, run <code>weir cluster init</code>: its policies become those of the cluster.
          </li>
          <li>
            On each other node, run <code>weir cluster join TOKEN</code> with a join token, which this page then issues.
          </li>
        </ol>
      </Panel>
      <Panel title="What it brings">
        <ul>
          <li>One write reaches all nodes at almost the same time, or none.</li>
          <li>A roll-out tries a change on a part of the nodes first, and goes back by itself after a fault.</li>
          <li>Findings, flows, hits and the wiretap of all nodes in one place.</li>
        </ul>
      </Panel>
    </div>
  );
}

function OfCluster({ cluster, again }: { readonly cluster: Cluster; readonly again: () => void }) {
  const nodes = usePolled((signal) => bodyOf(api.GET('/api/v1/cluster/nodes', { signal })), POLL_MS);
  const init = useAction();
  const items = nodes.data.value?.items ?? [];
  const ready = items.filter(({ state }) => state === 'ready').length;
  return (
    <>
      <p class="muted">
        {nodes.data.value !== null && (
          <>
            {ready} of {items.length} nodes are ready.{' '}
          </>
        )}
        {cluster.leader === null ? 'No node leads.' : `${cluster.leader} leads.`}{' '}
        {cluster.connected
          ? `This node follows the store at revision ${cluster.revision ?? '?'}.`
          : 'This node has no connection to the store: it enforces the last policy.'}
      </p>
      <ReadOnlyNote />
      <Failure failure={nodes.failure.value ?? init.failure.value} />
      {cluster.cluster_id === null && (
        <Panel title="The cluster does not exist yet">
          <p>
            The store has no cluster. Creating it makes the policies and settings of this node those of the cluster.
          </p>
          <WriteButton
            primary
            isBusy={init.isBusy.value}
            onClick={() =>
              void init.run(async () => {
                await bodyOf(api.POST('/api/v1/cluster/init'));
                again();
              })
            }
          >
            Create the cluster with the policies of {cluster.node_id}
          </WriteButton>
        </Panel>
      )}
      <div class="stack">
        <Rollout pending={node.report.value?.pending ?? null} />
        {items.length > 0 && <Table items={items} cluster={cluster} onRemoved={nodes.again} />}
        <div class="columns">
          <JoinToken />
          <Unreadable cluster={cluster} />
        </div>
      </div>
    </>
  );
}

const STATES: Readonly<Record<ClusterNode['state'], string>> = {
  ready: 'ready',
  not_ready: 'not ready',
  no_response: 'no response',
  absent: 'absent',
};

type TableProps = { readonly items: readonly ClusterNode[]; readonly cluster: Cluster; readonly onRemoved: () => void };

function Table({ items, cluster, onRemoved }: TableProps) {
  const own = node.report.value?.readiness.checks.map(({ name }) => name) ?? [];
  const checks = [...new Set([...own, ...items.flatMap(({ failing_checks }) => failing_checks)])];
  const newest = Math.max(...items.map(({ generation }) => generation ?? 0));
  return (
    <Panel title="All nodes that have joined">
      <div class="scroll">
        <table class="nodes">
          <TableHead
            columns={[
              ...['Node', 'State', 'In force', 'Clock'],
              ...checks.map((name) => CHECKS[name] ?? name),
              { hidden: 'Actions' },
            ]}
          />
          <tbody>
            {items.map((item) => (
              <Row key={item.node_id} {...{ item, checks, newest, cluster, onRemoved }} />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

type RowProps = {
  readonly item: ClusterNode;
  readonly checks: readonly string[];
  readonly newest: number;
  readonly cluster: Cluster;
  readonly onRemoved: () => void;
};

function Row({ item, checks, newest, cluster, onRemoved }: RowProps) {
  const { node_id: id, state, failing_checks: failing, error, generation, clock_offset: offset } = item;
  const responds = state === 'ready' || state === 'not_ready';
  return (
    <tr>
      <th scope="row">
        {id}{' '}
        <span class="muted">
          {[id === cluster.node_id && 'this node', id === cluster.leader && 'leads'].filter(Boolean).join(', ')}
        </span>
        <small>
          <span class="mono">{item.address}</span>, {item.version}
          {item.started_at !== null && (
            <>
              , runs for <Lasting at={item.started_at} />
            </>
          )}
        </small>
      </th>
      <td>
        <Mark ok={state === 'ready'} word={STATES[state]} />
        {!responds && (
          <small>
            {state === 'absent' ? 'It was stopped, or it cannot reach the store' : error}; its machine enforces the last
            policy.
          </small>
        )}
      </td>
      <td>
        {generation === null ? (
          '–'
        ) : (
          <>
            generation {full(generation)}
            {generation < newest && <span class="is-audit"> behind</span>}
            {item.in_force_since !== null && (
              <small>
                for <Lasting at={item.in_force_since} />
              </small>
            )}
          </>
        )}
      </td>
      <td>
        {offset === null ? (
          '–'
        ) : offset === 0 ? (
          'in step'
        ) : (
          <span class="is-audit">{offset > 0 ? `+${offset}` : offset} s</span>
        )}
      </td>
      {checks.map((name) => (
        <td key={name}>
          {responds ? <Mark ok={!failing.includes(name)} word={failing.includes(name) ? 'fails' : 'ok'} /> : '–'}
        </td>
      ))}
      <td class="number">
        {id !== cluster.node_id && (
          <NamedConfirm
            label="Remove"
            name={id}
            onConfirm={async () => {
              await bodyOf(api.DELETE('/api/v1/cluster/nodes/{id}', { params: { path: { id } } }));
              onRemoved();
            }}
          >
            <p>
              The node loses its membership and its API tokens at once, and cannot join again with its data folder. It
              enforces its last policy until it is stopped.
            </p>
            <p>It still has the credentials of etcd: change them if its machine is not trusted any more.</p>
          </NamedConfirm>
        )}
      </td>
    </tr>
  );
}

function Mark({ ok, word }: { readonly ok: boolean; readonly word: string }) {
  return (
    <span class={`word ${ok ? '' : 'is-deny'}`}>
      <StateMark ok={ok} word="" /> {word}
    </span>
  );
}

function JoinToken() {
  const issued = useSignal<Schemas['JoinToken'] | null>(null);
  const action = useAction();
  const issue = () =>
    action.run(async () => {
      issued.value = (await bodyOf(api.POST('/api/v1/cluster/join-tokens'))) as Schemas['JoinToken'];
    });
  return (
    <Panel title="Add a node">
      {issued.value === null ? (
        <>
          <p>
            A join token is valid for one hour and for one node. It contains access to the store: send it over a safe
            way.
          </p>
          <WriteButton isBusy={action.isBusy.value} onClick={() => void issue()}>
            Issue a join token
          </WriteButton>
        </>
      ) : (
        <ShownOnce
          title="Join token"
          secret={issued.value.token}
          onDone={() => {
            issued.value = null;
          }}
        >
          It ends <Ago at={issued.value.expires_at} />, and cannot be shown again. On the new node run{' '}
          <code>weir cluster join TOKEN --config /etc/weir/weir.yaml --advertise ADDRESS:7443</code>.
        </ShownOnce>
      )}
      <Failure failure={action.failure.value} />
    </Panel>
  );
}

/** Shows stored values that this node cannot read. */
function Unreadable({ cluster }: { readonly cluster: Cluster }) {
  return (
    <Panel title="Values that this node cannot read">
      {cluster.unreadable_count === 0 ? (
        <Empty>None: this node uses every value of the store.</Empty>
      ) : (
        <>
          <p>{full(cluster.unreadable_count)} values of etcd are left out. A newer node may have written them.</p>
          <ul class="plain-list">
            {cluster.unreadable.map(({ key, reason }) => (
              <li key={key}>
                <code>{key}</code> <span class="muted">{reason}</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </Panel>
  );
}
