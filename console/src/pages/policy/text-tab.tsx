import { useSignal } from '@preact/signals';
import type { Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { Failure } from '../../ui/parts.js';
import { draftTexts } from './draft.js';
import { DraftEditor } from './draft-editor.js';
import { type Stored, storedPolicy } from './policy-requests.js';

type Props = { readonly record: Schemas['PolicyRecord'] | null; readonly changed: () => void };

const NOTHING: Stored = { record: null, document: {}, etag: null };

async function prepared(id: string | null, signal: AbortSignal) {
  const stored = id === null ? NOTHING : await storedPolicy(id, signal);
  return { stored, texts: await draftTexts(stored, signal) };
}

/** The text of a policy, or of a new one. */
export function PolicyTextTab({ record, changed }: Props) {
  const round = useSignal(0);
  const id = record?.id ?? null;
  const loaded = usePolled((signal) => prepared(id, signal), null, `${id} ${round.value}`);
  const shown = loaded.data.value;
  if (shown === null)
    return loaded.failure.value === null ? (
      <p role="status" aria-busy="true">
        Preparing the text of the policy…
      </p>
    ) : (
      <Failure failure={loaded.failure.value} />
    );
  return (
    <DraftEditor
      key={`${id} ${round.value}`}
      {...shown}
      record={record}
      reload={() => {
        round.value++;
        changed();
      }}
    />
  );
}
