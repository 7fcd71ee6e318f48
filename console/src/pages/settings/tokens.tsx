import { useSignal } from '@preact/signals';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { session } from '../../node.js';
import { useAction } from '../../ui/action.js';
import { Empty, Failure, Panel } from '../../ui/parts.js';
import { SelectField } from '../../ui/select-field.js';
import { TableHead } from '../../ui/table-head.js';
import { TextField } from '../../ui/text-field.js';
import { Ago, now } from '../../ui/time.js';
import { NamedConfirm, ShownOnce, WriteButton } from '../../ui/write.js';

type Token = Schemas['Token'];
const DAY_S = 86_400;
const LIFETIMES: readonly (readonly [seconds: number, label: string])[] = [
  [DAY_S, '1 day'],
  [30 * DAY_S, '30 days'],
  [365 * DAY_S, '1 year'],
  [0, 'never'],
];
const ENDED_SHOWN = 20;

/** Lists the API tokens, with forms to issue and to revoke a token. */
export function Tokens() {
  const tokens = usePolled((signal) => bodyOf(api.GET('/api/v1/tokens', { signal })), 15_000);
  const issued = useSignal<Schemas['IssuedToken'] | null>(null);
  const showsEnded = useSignal(false);
  const all = tokens.data.value?.items ?? [];
  const hasEnded = ({ revoked_at, expires_at }: Token) =>
    revoked_at !== null || (expires_at !== null && Date.parse(expires_at) < now.value);
  const ended = all.filter(hasEnded);
  const valid = all.filter((token) => !hasEnded(token));
  return (
    <Panel title="API tokens">
      <Failure failure={tokens.failure.value} />
      {issued.value === null ? (
        <Issue
          onIssued={(token) => {
            issued.value = token;
            tokens.again();
          }}
        />
      ) : (
        <ShownOnce
          title={`Token of ${issued.value.subject}`}
          secret={issued.value.token}
          onDone={() => {
            issued.value = null;
          }}
        >
          Copy it now: the node does not store it, and cannot show it again.
        </ShownOnce>
      )}
      <div class="scroll">
        <table>
          <TableHead columns={['Subject', 'Role', 'Issued', 'Ends', { hidden: 'Actions' }]} />
          <tbody>
            {valid.map((token) => (
              <Row key={token.id} token={token} onRevoked={tokens.again} />
            ))}
            {showsEnded.value &&
              ended.slice(-ENDED_SHOWN).map((token) => <Row key={token.id} token={token} onRevoked={null} />)}
          </tbody>
        </table>
      </div>
      {!session.mayWrite.value && <Empty>A session that may only read sees its own token alone.</Empty>}
      {ended.length > 0 && (
        <label class="check">
          <input
            type="checkbox"
            checked={showsEnded.value}
            onChange={(event) => {
              showsEnded.value = event.currentTarget.checked;
            }}
          />{' '}
          Show {ended.length} revoked or expired
        </label>
      )}
    </Panel>
  );
}

function Row({ token, onRevoked }: { readonly token: Token; readonly onRevoked: (() => void) | null }) {
  const { id, subject, role, created_at, expires_at, revoked_at } = token;
  const isOwn = subject === session.current.value?.subject;
  return (
    <tr class={onRevoked === null ? 'muted' : ''}>
      <th scope="row" title={id}>
        {subject}
      </th>
      <td>{role}</td>
      <td>
        <Ago at={created_at} />
      </td>
      <td>
        {revoked_at !== null ? (
          <>
            revoked <Ago at={revoked_at} />
          </>
        ) : expires_at === null ? (
          'never'
        ) : (
          <Ago at={expires_at} />
        )}
      </td>
      <td class="number">
        {onRevoked !== null && (
          <NamedConfirm
            label="Revoke"
            name={subject}
            onConfirm={async () => {
              await bodyOf(api.DELETE('/api/v1/tokens/{id}', { params: { path: { id } } }));
              onRevoked();
            }}
          >
            <p>
              The token <code>{id}</code> is refused from now on, and its sessions and streams end. A revocation cannot
              be taken back.
              {isOwn && <strong> It has the subject of your own session: you may be signed out.</strong>}
            </p>
          </NamedConfirm>
        )}
      </td>
    </tr>
  );
}

function Issue({ onIssued }: { readonly onIssued: (token: Schemas['IssuedToken']) => void }) {
  const subject = useSignal('');
  const role = useSignal<Token['role']>('readonly');
  const lifetime = useSignal(30 * DAY_S);
  const action = useAction();
  const issue = () =>
    action.run(async () => {
      const body = {
        subject: subject.value.trim(),
        role: role.value,
        ...(lifetime.value === 0 ? {} : { expires_in: lifetime.value }),
      };
      onIssued((await bodyOf(api.POST('/api/v1/tokens', { body }))) as Schemas['IssuedToken']);
    });
  return (
    <>
      <form
        class="form-row"
        onSubmit={(event) => {
          event.preventDefault();
          if (session.mayWrite.value && subject.value.trim() !== '') void issue();
        }}
      >
        <TextField
          label="Subject of a new token"
          text={subject}
          input={{
            placeholder: 'dashboard',
            pattern: '[\\w.@:\\-]{1,128}',
            title: '1 to 128 letters, digits, and any of . _ @ : -',
          }}
        />
        <label class="field choice">
          Role
          <select
            value={role.value}
            onChange={(event) => {
              role.value = event.currentTarget.value as Token['role'];
            }}
          >
            <option>readonly</option>
            <option>admin</option>
          </select>
        </label>
        <SelectField
          label="Ends"
          kind="choice"
          value={lifetime.value}
          options={LIFETIMES}
          onChoose={(seconds) => {
            lifetime.value = Number(seconds);
          }}
        />
        <WriteButton isBusy={action.isBusy.value || subject.value.trim() === ''} onClick={() => void issue()}>
          Issue
        </WriteButton>
      </form>
      <Failure failure={action.failure.value} />
    </>
  );
}
