import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { asNetwork } from '../../address-set.js';
import type { Schemas } from '../../api/client.js';
import { full } from '../../format.js';
import { addressOf, go, query } from '../../router.js';
import { inSlices } from '../../slices.js';
import { AfterApply } from './after-apply.js';
import { completePolicy } from './completion.js';
import { Conflict } from './conflict.js';
import { type Draft, type DraftTexts, startDraft } from './draft.js';
import { DraftBar } from './draft-bar.js';
import { Editor, type EditorHandle, type EditorMark } from './editor.js';
import { FindBar, type Sought } from './find-bar.js';
import { lineNotes, MANY_RULES, useHits } from './hits.js';
import { dropDraft, forgetDraft, takeDropped } from './kept-drafts.js';
import { EditFailure, editText, type PolicyEdit } from './policy-edits.js';
import { documentOfRevision, type Stored, storedPolicy } from './policy-requests.js';
import type { RulePlace } from './policy-text.js';
import { Problems } from './problems.js';
import { useReports } from './reports.js';
import { Review } from './review.js';
import { RuleList } from './rule-list.js';
import { TextChanges } from './text-changes.js';

type Props = {
  readonly stored: Stored;
  readonly texts: DraftTexts;
  readonly record: Schemas['PolicyRecord'] | null;
  readonly reload: () => void;
};

/**
 * The editor of a policy draft. The node checks the text while the user types; the user reviews and applies
 * it, and keeps or reverts the change.
 */
export function DraftEditor({ stored, texts, record, reload }: Props) {
  const draft = useMemo(() => startDraft(stored, texts), [stored]);
  useEffect(() => () => void draft.actor.stop(), [draft]);
  useReports(draft.actor);
  const editor = useRef<EditorHandle>(null);
  const notice = useSignal<Notice | null>(null);
  const isComparing = useSignal(false);
  const { value: state, context } = draft.snapshot.value;
  const isClean = draft.snapshot.value.matches('clean');
  const marks = useMarks(draft);
  const rules = draft.rules.value;
  const inView = useSignal<readonly [from: number, to: number]>([0, 0]);
  const sought = useSignal<Sought | null>(null);
  const listed = useSignal<readonly RulePlace[]>([]);
  const hits = useHits({
    isActive: record?.active === true,
    rules,
    shown: useMemo(
      () => [...rulesBetween(rules, ...inView.value), ...listed.value],
      [rules, inView.value, listed.value],
    ),
    isUnused: query.value.get('show') === 'unused',
  });
  const notes = useMemo(() => lineNotes(rules, hits.data.value), [rules, hits.data.value]);
  const marked = useLinkedRule(draft);

  // Show the new text if another client has written the policy while this page has no edits.
  const isOutdated = record !== null && record.revision > (draft.origin.value.revision ?? 0);
  useEffect(() => {
    if (isOutdated && isClean) reload();
  }, [isOutdated, isClean]);
  useEffect(() => {
    if (state === 'kept') forgetDraft(record?.id ?? null);
  }, [state]);

  const takeEdits = async (edits: readonly PolicyEdit[], isReviewed: boolean) => {
    const handle = editor.current;
    if (handle === null) return;
    try {
      const before = handle.text();
      const edited = await inSlices(editText(before, edits));
      if (editor.current?.text() !== before) throw new EditFailure('The text was edited meanwhile. Try it again.');
      handle.replace(edited);
      if (isReviewed) draft.actor.send({ type: 'review_requested' });
    } catch (failure) {
      if (!(failure instanceof EditFailure)) throw failure;
      notice.value = { text: failure.message };
    }
  };
  useProposal(takeEdits);

  useEffect(() => {
    const dropped = record === null ? null : takeDropped(record.id);
    if (dropped !== null)
      notice.value = { text: 'This is the stored text.', undo: () => editor.current?.replace(dropped) };
  }, []);
  const discard = () => {
    const handle = editor.current;
    if (handle === null) return;
    const discarded = handle.text().toString();
    handle.replace(record === null ? draft.first : draft.base);
    notice.value = { text: 'The draft was discarded.', undo: () => handle.replace(discarded) };
  };
  /**
   * Assigns the draft to a newer revision with the same text. Such a revision exists after a revert, or after
   * a change and its rollback.
   */
  const rebase = async () => {
    if (record === null) return;
    const { revision } = draft.origin.value;
    const cancelled = new AbortController().signal;
    const [now, origin] = await Promise.all([
      storedPolicy(record.id, cancelled),
      documentOfRevision(record.id, revision, cancelled),
    ]);
    if (JSON.stringify(origin) !== JSON.stringify(now.document)) return;
    draft.rebased({ etag: now.etag, revision: now.record?.revision ?? null });
  };
  const isReview = state === 'reviewing' || state === 'applying' || state === 'rejudging';
  const isOver = state === 'awaiting_confirmation' || state === 'kept' || state === 'reverted';
  const isConflict = state === 'conflicting' || isComparing.value;
  const isEditing = !isReview && !isOver && !isConflict;
  const isBehind = isOutdated && !isClean && !isOver;
  useEffect(() => {
    if (isBehind) void rebase();
  }, [record?.revision, isBehind]);
  return (
    <>
      {notice.value !== null && (
        <p class="notice" role="status">
          {notice.value.text}{' '}
          {notice.value.undo !== undefined && (
            <button
              type="button"
              onClick={() => {
                notice.value?.undo?.();
                notice.value = null;
              }}
            >
              Undo
            </button>
          )}{' '}
          <button
            type="button"
            class="plain"
            onClick={() => {
              notice.value = null;
            }}
          >
            Dismiss
          </button>
        </p>
      )}
      {isOutdated && isEditing && !isClean && (
        <p class="notice" role="status">
          Revision {record.revision} by {record.updated_by} was stored meanwhile. This draft was made from revision{' '}
          {draft.origin.value.revision}.{' '}
          <button
            type="button"
            onClick={() => {
              isComparing.value = true;
            }}
          >
            Show both texts
          </button>
        </p>
      )}
      {isReview && (
        <Review
          title="Review the change"
          context={context}
          record={record}
          isBusy={state !== 'reviewing'}
          onApply={(terms) => draft.actor.send({ type: 'apply_requested', terms })}
          onClose={() => draft.actor.send({ type: 'review_left' })}
          onChoose={(change) => draft.actor.send({ type: 'change_chosen', change })}
        >
          <TextChanges before={draft.base} after={context.change} />
        </Review>
      )}
      {isOver && (
        <AfterApply
          state={state}
          context={context}
          onClose={() => {
            if (state === 'reverted') draft.edited(editor.current?.text() ?? draft.first);
            else if (record === null) go(addressOf('policy'));
            else reload();
          }}
        />
      )}
      {isConflict && record !== null && (
        <Conflict
          id={record.id}
          mine={editor.current?.text().toString() ?? draft.first}
          originRevision={draft.origin.value.revision}
          onTake={(text, origin) => {
            isComparing.value = false;
            draft.origin.value = origin;
            if (text !== editor.current?.text().toString()) editor.current?.replace(text);
            draft.edited(editor.current?.text() ?? text);
          }}
          onDrop={() => {
            dropDraft(record.id, editor.current?.text().toString() ?? '');
            reload();
          }}
          onClose={() => {
            isComparing.value = false;
            draft.actor.send({ type: 'review_left' });
          }}
        />
      )}
      <div hidden={!isEditing}>
        <DraftBar
          draft={draft}
          record={record}
          onDiscard={discard}
          onMode={(mode) => void takeEdits([{ edit: 'set_mode', mode }], true)}
        />
        <FindBar sought={sought} editor={editor} />
        <div class="editor-columns">
          <Editor
            text={draft.first}
            label="Policy as YAML"
            marks={marks}
            notes={notes}
            marked={marked}
            complete={completePolicy}
            onEdit={draft.edited}
            onFind={(direction, selected) => {
              const words = direction === 0 && selected !== '' ? selected : (sought.value?.words ?? selected);
              sought.value = { words, found: editor.current?.find(words, direction) ?? { number: 0, count: 0 } };
            }}
            onView={(from, to) => {
              inView.value = [from, to];
            }}
            handle={editor}
          />
          <div class="stack">
            <Problems
              context={context}
              state={isClean ? 'clean' : typeof state === 'string' ? state : 'editing'}
              onGo={(at) => editor.current?.goTo(at)}
              text={editor}
            />
            <RuleList
              rules={rules}
              hits={hits.data.value}
              failure={hits.failure.value}
              isActive={record?.active === true}
              onGo={(at) => editor.current?.goTo(at)}
              onShown={(shown) => {
                listed.value = shown;
              }}
            />
          </div>
        </div>
        <p class="muted">
          The node stores the data of this text, not its comments and its layout. <kbd>Ctrl</kbd> <kbd>Space</kbd>{' '}
          completes, <kbd>Ctrl</kbd> <kbd>F</kbd> finds, and <kbd>Tab</kbd> leaves the editor.
          {rules.length > MANY_RULES &&
            ` The policy has ${full(rules.length)} rules, so that each of them is one line of JSON, and the node checks the text a few seconds after the last key.`}
          {!draft.survives.value && ' This draft is too large to survive a reload of the page.'}
        </p>
      </div>
    </>
  );
}

/** Returns the rules whose first line is in a part of the text. */
function rulesBetween(rules: readonly RulePlace[], from: number, to: number): readonly RulePlace[] {
  const first = (offset: number) => {
    let [low, high] = [0, rules.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((rules[middle]?.from ?? 0) < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return rules.slice(first(from), first(to));
}

type Notice = { readonly text: string; readonly undo?: () => void };

/** Returns the problems and warnings of the last check that have a place in the text. */
function useMarks(draft: Draft): readonly EditorMark[] {
  const { judgement } = draft.snapshot.value.context;
  return useMemo(() => {
    if (judgement === null) return [];
    const severity = judgement.isSound ? 'warning' : 'error';
    return (judgement.isSound ? judgement.warnings : judgement.problems).flatMap(({ from, to, message }) =>
      from === undefined || to === undefined ? [] : [{ from, to, message, severity }],
    );
  }, [judgement]);
}

/**
 * Returns the offset in the text at which the rule of the URL was when the text was read first. Later edits do
 * not change the result.
 */
function useLinkedRule({ rules }: Draft): number | null {
  const [group, rule] = [query.value.get('group'), query.value.get('rule')];
  const isKnown = rules.value.length > 0;
  return useMemo(
    () => rules.value.find((place) => place.group === group && (rule === null || place.rule === rule))?.from ?? null,
    [group, rule, isKnown],
  );
}

/** Inserts the rule that a link to this page proposes into the draft, once, and opens the review. */
function useProposal(take: (edits: readonly PolicyEdit[], isReviewed: boolean) => Promise<void>): void {
  const text = query.value.get('propose');
  useEffect(() => {
    if (text === null) return;
    const rest = Object.fromEntries([...query.value].filter(([name]) => name !== 'propose' && name !== 'src'));
    const src = query.value.get('src');
    go(addressOf('policy', rest), { replace: true });
    try {
      const remedy = JSON.parse(text) as {
        source_group: string | null;
        before: string | null;
        rule: Record<string, unknown>;
      };
      const sources = src === null ? {} : { sources: src.split(',').map(asNetwork) };
      void take([{ edit: 'insert_rule', ...remedy, ...sources }], true);
    } catch (failure) {
      if (!(failure instanceof SyntaxError)) throw failure;
    }
  }, [text]);
}
