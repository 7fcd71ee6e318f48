import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { api, bodyOf } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { full } from '../../format.js';
import { Failure } from '../../ui/parts.js';

/** The flows to end (cut): the filter as a query, and as text. */
export type CutQuestion = { readonly query: Readonly<Record<string, readonly string[]>>; readonly words: string };

type Props = { readonly question: CutQuestion; readonly onEnd: () => void };

/**
 * A dialog that shows how many flows a cut would end, and asks for confirmation, because a cut cannot be
 * undone.
 */
export function CutDialog({ question, onEnd }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const failure = useSignal<unknown>(null);
  const isBusy = useSignal(false);
  useEffect(() => dialog.current?.showModal(), []);
  const trial = usePolled(
    (signal) =>
      bodyOf(api.DELETE('/api/v1/flows', { params: { query: { ...question.query, dry_run: true } }, signal })),
    2_000,
  );
  const count = trial.data.value?.cut;
  const cut = async (event: Event) => {
    event.preventDefault();
    isBusy.value = true;
    failure.value = null;
    try {
      await bodyOf(api.DELETE('/api/v1/flows', { params: { query: { ...question.query } } }));
      dialog.current?.close();
    } catch (error) {
      failure.value = error;
    }
    isBusy.value = false;
  };
  return (
    <dialog ref={dialog} onClose={onEnd} aria-labelledby="cut-title" class="cut">
      <form onSubmit={cut}>
        <h2 id="cut-title">
          {count === undefined ? 'Cut flows' : `Cut ${full(count)} ${count === 1 ? 'flow' : 'flows'}`}
        </h2>
        <p class="mono">{question.words}</p>
        <p>
          The node forgets {count === 1 ? 'this flow' : 'these flows'}, and judges the next packet as that of a new
          flow, by the policy in force. A TCP packet in the middle of a connection is then out of state: unless the node
          picks up connections (<code>dataplane.pickup</code>), the connection breaks, and its program must open
          another.
        </p>
        <Failure failure={failure.value ?? trial.failure.value} />
        <div class="actions">
          <button type="submit" class="primary" disabled={isBusy.value || count === undefined || count === 0}>
            {count === 0 ? 'No flow matches' : 'Cut'}
          </button>
          <button type="button" onClick={() => dialog.current?.close()}>
            Keep
          </button>
        </div>
      </form>
    </dialog>
  );
}
