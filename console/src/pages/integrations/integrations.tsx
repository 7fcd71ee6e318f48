import { useSignal } from '@preact/signals';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { full } from '../../format.js';
import { Empty, Failure, Panel, StateMark } from '../../ui/parts.js';
import { TableHead } from '../../ui/table-head.js';
import { Ago, Lasting } from '../../ui/time.js';
import { NamedConfirm, ReadOnlyNote } from '../../ui/write.js';
import { Connect } from './connect.js';
import { Members } from './members.js';

type Integration = Schemas['IntegrationList']['items'][number];
type Status = Schemas['IntegrationStatus'];

/**
 * The page Integrations: shows the Kubernetes clusters that the node watches, whether it has their objects,
 * and the pods and nodes that the selectors of the policy select.
 */
export function Integrations() {
  const integrations = usePolled((signal) => bodyOf(api.GET('/api/v1/integrations', { signal })), 10_000);
  const items = integrations.data.value?.items;
  return (
    <>
      <h1>Integrations</h1>
      <p class="muted">
        A source group can select pods and nodes of Kubernetes by their labels. Weir follows their addresses.
      </p>
      <Failure failure={integrations.failure.value} />
      {items !== undefined && (
        <>
          <ReadOnlyNote />
          <div class="stack">
            {items.length === 0 && <None />}
            {items.map((each) => (
              <One key={each.name} integration={each} onChanged={integrations.again} />
            ))}
            {items.length > 0 && <Members />}
            <Panel title="Add an integration">
              <Connect replaced={null} onStored={integrations.again} />
            </Panel>
          </div>
        </>
      )}
    </>
  );
}

function None() {
  return (
    <Panel title="No integration yet">
      <p>
        To follow a Kubernetes cluster from this gateway, run this with the kubeconfig of an administrator, or give a
        token below:
      </p>
      <pre class="code wrap">weir integration add prod --kubeconfig ~/.kube/config --create-account</pre>
      <p>
        It makes a service account that may read pods, nodes and namespaces, and gives its token to the node. Then a
        source group selects by labels:
      </p>
      <pre class="code wrap">{`sources:
  kubernetes:
    - integration: prod
      pod_selector: { namespace: shop, match_labels: { app: web } }`}</pre>
      <p class="muted">
        A node that runs in a cluster gets the integration <code>local</code> from <code>kubernetes.in_cluster</code> of
        its configuration.
      </p>
    </Panel>
  );
}

const STATES: Readonly<Record<Status['state'], readonly [ok: boolean, words: string]>> = {
  unused: [true, 'not watched: no selector of the policy names it'],
  connecting: [true, 'connecting'],
  listing: [true, 'reading the objects'],
  watching: [true, 'watching'],
  silent: [false, 'the API server is silent'],
  backing_off: [false, 'waiting before the next attempt'],
  'refused.unauthorized': [false, 'the API server refuses the token'],
  'refused.forbidden': [false, 'the token may not read the objects'],
  failed: [false, 'failed'],
};

function One({ integration, onChanged }: { readonly integration: Integration; readonly onChanged: () => void }) {
  const { name } = integration;
  const isReplacing = useSignal(false);
  const status = usePolled(
    (signal) => bodyOf(api.GET('/api/v1/integrations/{name}/status', { params: { path: { name } }, signal })),
    3_000,
    name,
  );
  const shown = status.data.value;
  const [ok, words] = shown === null ? [true, '…'] : STATES[shown.state];
  return (
    <Panel
      title={
        <>
          {name}{' '}
          <span class="muted">
            {integration.in_cluster ? 'of the cluster of this node' : integration.api_server_url}
          </span>
        </>
      }
      actions={
        !integration.in_cluster && (
          <>
            <button
              type="button"
              aria-expanded={isReplacing.value}
              onClick={() => {
                isReplacing.value = !isReplacing.value;
              }}
            >
              Replace…
            </button>
            <NamedConfirm
              label="Delete"
              name={name}
              onConfirm={async () => {
                await bodyOf(api.DELETE('/api/v1/integrations/{name}', { params: { path: { name } } }));
                onChanged();
              }}
            >
              <p>
                The node forgets the integration and its token. It refuses if a selector of the active policy names it.
              </p>
            </NamedConfirm>
          </>
        )
      }
    >
      {!integration.in_cluster && isReplacing.value && (
        <Connect
          replaced={integration}
          onStored={() => {
            status.again();
            onChanged();
          }}
        />
      )}
      <Failure failure={status.failure.value} />
      {shown !== null && (
        <>
          <p>
            <span class={`word ${ok ? '' : 'is-deny'}`}>
              <StateMark ok={ok} word="" /> <strong>{words}</strong>
            </span>
            {shown.since !== null && (
              <span class="muted">
                {' '}
                for <Lasting at={shown.since} />
              </span>
            )}
            {shown.stale && ' The objects in force can be older than those of the API server. They stay in force.'}
          </p>
          {shown.last_error !== null && (
            <p class={ok ? 'muted' : 'failure'}>
              Last error, <Ago at={shown.last_error.at} /> with {shown.last_error.reflector}: {shown.last_error.reason}
            </p>
          )}
          {shown.warnings.map(({ code, message }) => (
            <p key={code} class="is-audit">
              {message}
            </p>
          ))}
          <p class="muted">
            Knows {counted(shown.objects.pods, 'pod')}, {counted(shown.objects.nodes, 'node')} and{' '}
            {counted(shown.objects.namespaces, 'namespace')}.
          </p>
          <Selectors selectors={shown.selectors} />
        </>
      )}
    </Panel>
  );
}

const counted = (count: number, noun: string): string => `${full(count)} ${noun}${count === 1 ? '' : 's'}`;

const SHOWN = 200;

function Selectors({ selectors }: Pick<Status, 'selectors'>) {
  if (selectors.length === 0) return <Empty>No selector of the active policy names this integration.</Empty>;
  return (
    <div class="scroll">
      <table>
        <TableHead columns={['Selector of the policy', 'Resolved', { number: 'Addresses' }, { number: 'Networks' }]} />
        <tbody>
          {selectors.slice(0, SHOWN).map(({ selector, resolved, addresses, networks }) => (
            <tr key={JSON.stringify(selector)}>
              <td class="mono">{selectorText(selector)}</td>
              <td>
                <span class={`word ${resolved ? '' : 'is-deny'}`}>
                  <StateMark ok={resolved} word="" /> {resolved ? 'yes' : 'no: its group fails closed'}
                </span>
              </td>
              <td class="number">{full(addresses)}</td>
              <td class="number">{full(networks)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {selectors.length > SHOWN && <p class="muted">and {full(selectors.length - SHOWN)} more</p>}
    </div>
  );
}

/** Returns a Kubernetes selector as one line: "pods namespace=shop app=web". */
function selectorText({ pod_selector: pods, node_selector: nodes }: Status['selectors'][number]['selector']): string {
  type Fields = { readonly match_labels?: Readonly<Record<string, string>> };
  const words = (kind: string, { match_labels: labels = {}, ...rest }: Fields) => {
    const others = Object.entries(rest).map(
      ([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
    );
    return [kind, ...others, ...Object.entries(labels).map(([name, value]) => `${name}=${value}`)].join(' ');
  };
  return [
    ...(pods === undefined ? [] : [words('pods', pods)]),
    ...(nodes === undefined ? [] : [words('nodes', nodes)]),
  ].join('; ');
}
