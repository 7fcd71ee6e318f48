import { useSignal } from '@preact/signals';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { session } from '../../node.js';
import { useAction } from '../../ui/action.js';
import { Failure } from '../../ui/parts.js';
import { TextField } from '../../ui/text-field.js';
import { WriteButton } from '../../ui/write.js';

type Props = {
  /** The integration that the form replaces; null if the form adds a new one. */
  readonly replaced: Schemas['Integration'] | null;
  readonly onStored: () => void;
};

/**
 * A form that adds or replaces an integration: the address of a Kubernetes API server, its certificates, and
 * a token.
 */
export function Connect({ replaced, onStored }: Props) {
  const name = useSignal(replaced?.name ?? '');
  const url = useSignal(replaced?.api_server_url ?? '');
  const ca = useSignal(replaced?.ca_cert_pem ?? '');
  const token = useSignal('');
  const stored = useSignal<Schemas['WrittenIntegration'] | null>(null);
  const action = useAction();
  const fields = [name, url, ca, token];
  const isFilled = fields.every(({ value }) => value.trim() !== '');
  const store = async () => {
    const body = {
      kind: 'kubernetes' as const,
      api_server_url: url.value.trim(),
      ca_cert_pem: ca.value,
      service_account_token: token.value.trim(),
    };
    stored.value = await bodyOf(
      replaced === null
        ? api.POST('/api/v1/integrations', { body: { ...body, name: name.value.trim() } })
        : api.PUT('/api/v1/integrations/{name}', { params: { path: { name: replaced.name } }, body }),
    );
    token.value = '';
    onStored();
  };
  return (
    <form
      class="connect"
      onSubmit={(event) => {
        event.preventDefault();
        if (session.mayWrite.value && isFilled) void action.run(store);
      }}
    >
      {replaced === null && (
        <TextField
          label="Name, as source groups name it"
          text={name}
          input={{
            placeholder: 'prod',
            pattern: '[a-z0-9]([\\-a-z0-9]{0,61}[a-z0-9])?',
            title: '1 to 63 lower-case letters, digits and hyphens',
          }}
        />
      )}
      <TextField
        isWide
        label="API server"
        text={url}
        input={{ type: 'url', placeholder: 'https://kube.example.com:6443' }}
      />
      <label class="field wide">
        Certificates of its CA, in PEM
        <textarea
          rows={4}
          class="mono"
          spellcheck={false}
          value={ca.value}
          onInput={(event) => {
            ca.value = event.currentTarget.value;
          }}
        />
      </label>
      <TextField
        isWide
        label="Token of a service account that may list and watch pods, nodes and namespaces"
        text={token}
        input={{ type: 'password' }}
      />
      <div class="actions">
        <WriteButton primary isBusy={action.isBusy.value || !isFilled} onClick={() => void action.run(store)}>
          {action.isBusy.value ? 'Trying the connection…' : replaced === null ? 'Add it' : 'Replace it'}
        </WriteButton>
      </div>
      <Failure failure={action.failure.value} />
      {stored.value !== null && (
        <div role="status">
          <p>
            <strong>Stored {stored.value.name}.</strong>{' '}
            {stored.value.warnings.length === 0 && 'The API server accepts the token.'}
          </p>
          {stored.value.warnings.map(({ code, message }) => (
            <p key={code} class="is-audit">
              {message}
            </p>
          ))}
        </div>
      )}
    </form>
  );
}
