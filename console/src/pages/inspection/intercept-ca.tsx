import { useSignal } from '@preact/signals';
import { ApiFailure, api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { exact } from '../../format.js';
import { session } from '../../node.js';
import { useAction } from '../../ui/action.js';
import { Failure, Panel, StateMark } from '../../ui/parts.js';
import { Ago, now } from '../../ui/time.js';
import { NamedConfirm, WriteButton } from '../../ui/write.js';

const PATH = '/api/v1/settings/tls-intercept-ca';
const SOON_MS = 30 * 86_400_000;

const POLL_MS = 30_000;

/**
 * Reads the CA; null if there is none. First requests whether there is a CA, because the browser would report
 * a response with status 404 as an error.
 */
async function readCa(signal: AbortSignal): Promise<{ readonly ca: Schemas['TlsInterceptCa'] | null }> {
  const { tls } = await bodyOf(api.GET('/api/v1/stats', { signal }));
  if (!tls.intercept_ca) return { ca: null };
  try {
    return { ca: await bodyOf(api.GET(PATH, { signal })) };
  } catch (failure) {
    if (failure instanceof ApiFailure && failure.status === 404) return { ca: null };
    throw failure;
  }
}

/** Shows the CA that signs the certificates of intercepted connections. */
export function InterceptCa() {
  const ca = usePolled(readCa, POLL_MS);
  const shown = ca.data.value?.ca ?? null;
  const action = useAction();
  const generate = async () => {
    await bodyOf(api.POST(`${PATH}/generate`));
    ca.again();
  };
  return (
    <Panel title="Intercept CA">
      <Failure failure={ca.failure.value ?? action.failure.value} />
      {ca.data.value !== null && shown === null && (
        <>
          <p>
            There is none. A rule with <code>mode: intercept</code> resets its connections until there is one.
          </p>
          <p class="muted">Generate one, and install its certificate on the clients. The API never returns its key.</p>
          <WriteButton primary isBusy={action.isBusy.value} onClick={() => void action.run(generate)}>
            Generate a CA
          </WriteButton>
        </>
      )}
      {shown !== null && (
        <>
          <Facts ca={shown} />
          <div class="actions">
            <a class="button primary" href={`${PATH}/cert`} download="weir-intercept-ca.pem">
              Download the certificate
            </a>
            <NamedConfirm label="Generate another" name="replace" onConfirm={generate}>
              <p>
                Open connections go on. New ones get certificates of the new CA, which clients refuse until they have
                its certificate. The present CA and its key are gone.
              </p>
            </NamedConfirm>
            <NamedConfirm
              label="Delete"
              name="delete"
              onConfirm={async () => {
                await bodyOf(api.DELETE(PATH));
                ca.again();
              }}
            >
              <p>
                Connections that a rule intercepts are reset from then on, and the node is not ready while the policy
                needs the CA. Its key is gone.
              </p>
            </NamedConfirm>
          </div>
        </>
      )}
      {ca.data.value !== null && <Install hasCa={shown !== null} onDone={ca.again} />}
    </Panel>
  );
}

function Facts({ ca }: { readonly ca: Schemas['TlsInterceptCa'] }) {
  const end = Date.parse(ca.not_after);
  const isOver = end < now.value;
  const isSoon = end - now.value < SOON_MS;
  return (
    <dl class="facts">
      <dt>Subject</dt>
      <dd>{ca.subject}</dd>
      <dt>SHA-256</dt>
      <dd class="mono">{ca.fingerprint_sha256.match(/.{8}/g)?.join(' ')}</dd>
      <dt>Valid</dt>
      <dd>
        <span class={`word ${isSoon ? 'is-deny' : ''}`}>
          <StateMark ok={!isSoon} word={isOver ? 'expired' : isSoon ? 'expires soon' : 'valid'} />
          {isOver ? 'it has expired' : 'ends'} <Ago at={ca.not_after} />
        </span>{' '}
        <span class="muted">
          {exact(ca.not_before)} to {exact(ca.not_after)}
        </span>
      </dd>
      <dt>Installed</dt>
      <dd>
        <Ago at={ca.updated_at} /> by {ca.updated_by}
      </dd>
    </dl>
  );
}

/** A form to upload a CA of the operator: its certificate and its key. */
function Install({ hasCa, onDone }: { readonly hasCa: boolean; readonly onDone: () => void }) {
  const cert = useSignal('');
  const key = useSignal('');
  const warnings = useSignal<readonly string[]>([]);
  const action = useAction();
  const install = () =>
    action.run(async () => {
      const written = await bodyOf(api.PUT(PATH, { body: { cert_pem: cert.value, key_pem: key.value } }));
      warnings.value = written.warnings.map(({ message }) => message);
      cert.value = '';
      key.value = '';
      onDone();
    });
  const field = (label: string, text: typeof cert, hint: string) => (
    <label class="field">
      {label}
      <textarea
        rows={3}
        class="mono"
        spellcheck={false}
        autocomplete="off"
        placeholder={hint}
        disabled={!session.mayWrite.value}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
        }}
      />
    </label>
  );
  return (
    <details class="install">
      <summary>{hasCa ? 'Replace it by a CA of your own' : 'Install a CA of your own'}</summary>
      {field('Certificate of the CA and of its issuers, PEM', cert, '-----BEGIN CERTIFICATE-----')}
      {field('Private key, PEM, not encrypted', key, '-----BEGIN PRIVATE KEY-----')}
      <Failure failure={action.failure.value} />
      {warnings.value.map((message) => (
        <p key={message} class="is-audit">
          {message}
        </p>
      ))}
      <WriteButton isBusy={action.isBusy.value || cert.value === '' || key.value === ''} onClick={() => void install()}>
        Install
      </WriteButton>
    </details>
  );
}
