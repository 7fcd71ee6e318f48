import { useSignal } from '@preact/signals';
import { api, bodyOf } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { node, session } from '../../node.js';
import { useAction } from '../../ui/action.js';
import { Failure, Panel, StateMark } from '../../ui/parts.js';
import { Ago, Lasting } from '../../ui/time.js';
import { ReadOnlyNote, WriteButton } from '../../ui/write.js';
import { Reload } from './reload.js';
import { Tokens } from './tokens.js';

/** The page Settings: settings of the node that are not part of the policy. */
export function Settings() {
  return (
    <>
      <h1>Settings</h1>
      <ReadOnlyNote />
      <div class="columns even">
        <div class="stack">
          <ThisNode />
          <Performance />
          <Reload />
          <Dump />
        </div>
        <Tokens />
      </div>
    </>
  );
}

function ThisNode() {
  const about = usePolled((signal) => bodyOf(api.GET('/api/v1/node', { signal })), 30_000);
  const current = session.current.value;
  const shown = about.data.value;
  return (
    <Panel title="This node and this session">
      <Failure failure={about.failure.value} />
      <dl class="facts">
        {shown !== null && (
          <>
            <dt>Node</dt>
            <dd>
              <strong>{shown.id}</strong>, Weir {shown.version}, kernel {shown.kernel}
            </dd>
            <dt>Process</dt>
            <dd>
              runs for <Lasting at={shown.started_at} />
            </dd>
            <dt>Kernel</dt>
            <dd>
              {shown.generation === null ? (
                'enforces no generation that the node knows'
              ) : (
                <>
                  enforces generation {shown.generation}
                  {shown.in_force_since !== null && (
                    <>
                      {' '}
                      for <Lasting at={shown.in_force_since} />
                    </>
                  )}
                </>
              )}
            </dd>
          </>
        )}
        {current !== null && (
          <>
            <dt>Signed in</dt>
            <dd>
              as <strong>{current.subject}</strong> (
              {current.role === 'admin' ? 'admin: may change the node' : 'readonly: may only read'}). The session ends{' '}
              <Ago at={current.expires_at} />, or with its token.
            </dd>
          </>
        )}
      </dl>
    </Panel>
  );
}

const DARK = [
  'the page Traffic and every reader of the wiretap: streams end, and their messages are lost',
  'the page Findings: the list cannot be read',
  'denied packets: they become no finding, also not later, and so no file or webhook gets them',
  'the record of seen flows: a review of a change does not know the flows of this time',
];
const LIT = [
  'verdicts: the policy is enforced as before',
  'open flows, counters, hits of rules, metrics, the log and Why?',
  'findings of denied lookups, inspected connections, refused requests and changes: they are recorded and exported, and can be read afterwards',
];

function Performance() {
  const mode = usePolled((signal) => bodyOf(api.GET('/api/v1/settings/performance-mode', { signal })), 10_000);
  const action = useAction();
  const shown = mode.data.value;
  const change = (enabled: boolean) =>
    action.run(async () => {
      await bodyOf(api.PUT('/api/v1/settings/performance-mode', { body: { enabled } }));
      mode.again();
      node.changed();
    });
  return (
    <Panel
      title="Performance mode"
      actions={
        shown !== null && (
          <WriteButton isBusy={action.isBusy.value} onClick={() => void change(!shown.enabled)}>
            {shown.enabled ? 'Disable it' : 'Enable it'}
          </WriteButton>
        )
      }
    >
      <Failure failure={action.failure.value ?? mode.failure.value} />
      {shown !== null && (
        <>
          <p>
            <StateMark ok={shown.enabled} word={shown.enabled ? 'enabled' : 'disabled'} />{' '}
            <strong>{shown.enabled ? 'Enabled' : 'Disabled'}</strong>
            <span class="muted">
              {shown.source === null
                ? ' by default'
                : ` by a setting of ${shown.source === 'local' ? 'this node' : 'the cluster'}`}
            </span>
          </p>
          <div class="dark-and-lit">
            <div>
              <h3>{shown.enabled ? 'Goes dark if it is disabled' : 'Is dark now'}</h3>
              <ul>
                {DARK.map((text) => (
                  <li key={text}>{text}</li>
                ))}
              </ul>
            </div>
            <div>
              <h3>Does not depend on it</h3>
              <ul>
                {LIT.map((text) => (
                  <li key={text}>{text}</li>
                ))}
              </ul>
            </div>
          </div>
        </>
      )}
    </Panel>
  );
}

function Dump() {
  const action = useAction();
  const saved = useSignal<string | null>(null);
  const isCluster = node.report.value?.stats.cluster.enabled === true;
  const collect = (ofAll: boolean) =>
    action.run(async () => {
      saved.value = null;
      const sent = ofAll
        ? api.POST('/api/v1/support/sysdump/cluster', { parseAs: 'blob' })
        : api.POST('/api/v1/support/sysdump/local', { parseAs: 'blob' });
      const file = (await bodyOf<unknown>(sent)) as Blob;
      saved.value = save(file, `weir-sysdump-${new Date().toISOString().slice(0, 19).replaceAll(':', '-')}.tar.gz`);
    });
  return (
    <Panel title="Support dump">
      <p class="muted">
        An archive with the state of the node, its policy, counters, recent findings and the configuration. It has no
        secrets. It is complete if its last file is <code>manifest.json</code>.
      </p>
      <div class="actions">
        <WriteButton isBusy={action.isBusy.value} onClick={() => void collect(false)}>
          {action.isBusy.value ? 'Collecting…' : 'Download the dump of this node'}
        </WriteButton>
        {isCluster && (
          <WriteButton isBusy={action.isBusy.value} onClick={() => void collect(true)}>
            Of all nodes
          </WriteButton>
        )}
      </div>
      <p role="status" class="muted">
        {saved.value !== null && `Saved as ${saved.value}.`}
      </p>
      <Failure failure={action.failure.value} />
    </Panel>
  );
}

/** Lets the browser save a file, and returns its name. */
function save(file: Blob, name: string): string {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return name;
}
