import { useSignal } from '@preact/signals';
import { session } from '../node.js';
import { TextField } from './text-field.js';

export function SignIn() {
  const token = useSignal('');
  const isBusy = session.state.value === 'signing_in';
  const submit = (event: Event) => {
    event.preventDefault();
    const text = token.value.trim().replace(/^Bearer\s+/i, '');
    if (text !== '') session.signIn({ token: text });
  };
  return (
    <main class="sign-in">
      <form class="panel" onSubmit={submit} aria-busy={isBusy}>
        <Brand />
        <h1>Sign in</h1>
        <p class="muted">
          Run <code>weir console</code> on the node: it prints a link that signs in this browser once. Or paste a token
          of <code>weir token create</code>.
        </p>
        <TextField label="Token" text={token} input={{ type: 'password', required: true }} />
        {session.reason.value !== null && (
          <p class="failure" role="alert">
            {session.reason.value}
          </p>
        )}
        <button type="submit" class="primary" disabled={isBusy}>
          {isBusy ? 'Signing in…' : 'Sign in'}
        </button>
      </form>
    </main>
  );
}

export function Brand() {
  return (
    <span class="brand">
      <img src={`${import.meta.env.BASE_URL}icon.svg`} alt="" width="24" height="24" /> Weir
    </span>
  );
}
