import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useId, useRef } from 'preact/hooks';
import { session } from '../node.js';
import { useAction } from './action.js';
import { Failure } from './parts.js';
import { TextField } from './text-field.js';
import '../style/parts.css';

/** A note on a page with disabled buttons: the session may not change anything. */
export function ReadOnlyNote() {
  if (session.mayWrite.value) return null;
  return (
    <p class="muted" role="note">
      This session may only read, so the controls that change something are disabled. Sign in with a token of the role
      admin to use them.
    </p>
  );
}

type WriteProps = {
  readonly onClick: () => void;
  readonly isBusy?: boolean;
  readonly primary?: boolean;
  readonly children: ComponentChildren;
};

/** A button that changes the node. It is disabled for a read-only session. */
export function WriteButton({ onClick, isBusy = false, primary = false, children }: WriteProps) {
  const mayWrite = session.mayWrite.value;
  return (
    <button
      type="button"
      class={primary ? 'primary' : ''}
      disabled={isBusy || !mayWrite}
      title={mayWrite ? undefined : 'This session may only read'}
      onClick={onClick}
    >
      {children}
    </button>
  );
}

type NamedProps = {
  /** The text of the button that opens the dialog, and of the button that confirms it. */
  readonly label: string;
  /** The name that the user must type to confirm: that of the object to remove. */
  readonly name: string;
  readonly children: ComponentChildren;
  readonly onConfirm: () => Promise<unknown>;
};

/**
 * A button for an action that cannot be undone. Its dialog describes the effect, and the user must type the
 * name of the object to remove.
 */
export function NamedConfirm({ label, name, children, onConfirm }: NamedProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const typed = useSignal('');
  const action = useAction();
  const id = useId();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (typed.value.trim() !== name) return;
    if (await action.run(onConfirm)) dialog.current?.close();
  };
  return (
    <>
      <WriteButton
        onClick={() => {
          typed.value = '';
          dialog.current?.showModal();
        }}
      >
        {label}
      </WriteButton>
      <dialog ref={dialog} aria-labelledby={id}>
        <form onSubmit={submit} class="named">
          <h2 id={id}>{label}</h2>
          {children}
          <TextField
            label={
              <span>
                Type <strong>{name}</strong> to confirm
              </span>
            }
            text={typed}
          />
          <Failure failure={action.failure.value} />
          <div class="actions">
            <button type="submit" class="primary danger" disabled={action.isBusy.value || typed.value.trim() !== name}>
              {label}
            </button>
            <button type="button" onClick={() => dialog.current?.close()}>
              Cancel
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}

type SecretProps = {
  readonly title: string;
  readonly secret: string;
  readonly onDone: () => void;
  readonly children: ComponentChildren;
};

/** Shows a secret that the node returns only once, with a button to copy it. */
export function ShownOnce({ title, secret, onDone, children }: SecretProps) {
  const copied = useSignal<boolean | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(secret);
      copied.value = true;
    } catch {
      // Select the text, so that the user can copy it by the keyboard: the clipboard API needs HTTPS or
      // localhost.
      field.current?.select();
      copied.value = false;
    }
  };
  return (
    <section class="secret" aria-label={title}>
      <h3>{title}</h3>
      <div>{children}</div>
      <textarea ref={field} readOnly rows={3} class="mono" aria-label={title} value={secret} />
      <div class="actions">
        <button type="button" class="primary" onClick={() => void copy()}>
          Copy
        </button>
        <button type="button" onClick={onDone}>
          I have stored it
        </button>
        <span role="status" class="muted">
          {copied.value === true && 'Copied.'}
          {copied.value === false && 'It is selected: press Ctrl+C.'}
        </span>
      </div>
    </section>
  );
}
