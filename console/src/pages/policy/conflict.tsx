import { usePolled } from '../../api/polled.js';
import { inSlices } from '../../slices.js';
import { Failure, Panel } from '../../ui/parts.js';
import { Ago } from '../../ui/time.js';
import { documentOfRevision, storedPolicy } from './policy-requests.js';
import { writeSteps } from './policy-text.js';
import { LineDiff } from './text-changes.js';
import { mergeTexts } from './text-diff.js';

type Origin = { readonly etag: string | null; readonly revision: number | null };
type Props = {
  readonly id: string;
  readonly mine: string;
  readonly originRevision: number | null;
  /** Continues with this text as a draft of the newer stored text. */
  readonly onTake: (text: string, origin: Origin) => void;
  /** Discards the draft, and shows the stored text. */
  readonly onDrop: () => void;
  readonly onClose: () => void;
};

/** The text from which the draft was made; null if its revision is no longer stored. */
async function baseText(id: string, revision: number | null, signal: AbortSignal): Promise<string | null> {
  const document = await documentOfRevision(id, revision, signal);
  return document === null ? null : inSlices(writeSteps(document), signal);
}

/**
 * A dialog for a draft whose policy another client has written meanwhile. Shows both texts, and offers to
 * merge them or to discard the draft.
 */
export function Conflict({ id, mine, originRevision, onTake, onDrop, onClose }: Props) {
  const stored = usePolled(
    async (signal) => {
      const [now, base] = await Promise.all([storedPolicy(id, signal), baseText(id, originRevision, signal)]);
      const theirs = await inSlices(writeSteps(now.document), signal);
      return { ...now, theirs, merged: base === null ? null : mergeTexts(base, mine, theirs) };
    },
    null,
    id,
  );
  const now = stored.data.value;
  const origin = { etag: now?.etag ?? null, revision: now?.record?.revision ?? null };
  return (
    <Panel
      title="The stored policy is newer than your draft"
      actions={
        <button type="button" onClick={onClose}>
          Back to the draft
        </button>
      }
    >
      <Failure failure={stored.failure.value} />
      {now === null || now.record === null ? (
        <p aria-busy="true">…</p>
      ) : (
        <>
          <p>
            Your draft was made from revision {originRevision}. {now.record.updated_by} stored revision{' '}
            {now.record.revision}, <Ago at={now.record.updated_at} />. Nothing was overwritten. From the stored text to
            yours:
          </p>
          <LineDiff before={now.theirs} after={mine} />
          <p class="actions">
            {now.merged !== null && (
              <button type="button" class="primary" onClick={() => onTake(now.merged ?? mine, origin)}>
                Put my edits into revision {now.record.revision}
              </button>
            )}
            <button type="button" class={now.merged === null ? 'primary' : ''} onClick={() => onTake(mine, origin)}>
              Go on with my text as it is
            </button>
            <button type="button" onClick={onDrop}>
              Take the stored text
            </button>
          </p>
          <p class="muted">
            {now.merged === null
              ? 'Both edits touch the same lines, or the former text is no longer stored, so they cannot be combined here.'
              : 'The edits touch different lines, so that both can be kept.'}{' '}
            Your text as it is undoes what the other write changed. The review shows everything before it is applied.
          </p>
        </>
      )}
    </Panel>
  );
}
