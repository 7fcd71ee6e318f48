import { useSignal } from '@preact/signals';
import type { Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { Failure } from '../../ui/parts.js';
import { DraftEditor } from './draft-editor.js';
import { type Stored, storedPolicy } from './policy-requests.js';

type Props = { readonly record: Schemas['PolicyRecord'] | null; readonly changed: () => void };

const NOTHING: Stored = { record: null, document: {}, etag: null };

/** The text of a policy, or of a new one. */
export function PolicyTextTab({ record, changed }: Props) {
  const round = useSignal(0);
  const id = record?.id ?? null;
  const stored = usePolled(
    (signal) => (id === null ? Promise.resolve(NOTHING) : storedPolicy(id, signal)),
    null,
    `${id} ${round.value}`,
  );
  const shown = stored.data.value;
  if (shown === null)
    return stored.failure.value === null ? <p aria-busy="true">…</p> : <Failure failure={stored.failure.value} />;
  return (
    <DraftEditor
      key={`${id} ${round.value}`}
      stored={shown}
      record={record}
      reload={() => {
        round.value++;
        changed();
      }}
    />
  );
}
