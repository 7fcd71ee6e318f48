import { type ReadonlySignal, type Signal, signal } from '@preact/signals';
import { type Actor, fromPromise, type SnapshotFrom } from 'xstate';
import { draftChart, type LazyText, type PolicyChange } from '../../charts/draft.chart.js';
import { started } from '../../charts/signal-of.js';
import { inSlices } from '../../slices.js';
import { forgetDraft, type KeptDraft, keepDraft, keptDraft } from './kept-drafts.js';
import { apply, judge, type Stored } from './policy-requests.js';
import { isJson, jsonDocument, type RulePlace, readText, rulePlaces, writeSteps } from './policy-text.js';

const NEW_POLICY = `# In the mode audit the policy denies nothing: what it would deny is reported.
mode: audit
name: my-policy
policy:
  default_policy: deny
  source_groups:
    - id: office
      sources: { cidrs: [ 10.1.0.0/24 ] }
      rules:
        - id: web
          action: allow
          match: { proto: tcp, dst_ports: [ 80, 443 ] }
`;

type Origin = { readonly etag: string | null; readonly revision: number | null };

/** The draft of one policy, made from its stored text. */
export type Draft = {
  readonly actor: Actor<typeof draftChart>;
  readonly snapshot: ReadonlySignal<SnapshotFrom<typeof draftChart>>;
  /** The stored text. */
  readonly base: string;
  /** The initial text of the editor: the saved draft, or without one the stored text. */
  readonly first: string;
  /** The ETag and the revision of the stored text from which the draft was made. */
  readonly origin: Signal<Origin>;
  /** The offsets of the rules in the text at its last check. */
  readonly rules: ReadonlySignal<readonly RulePlace[]>;
  /** False if a reload of the page would lose the draft. */
  readonly survives: ReadonlySignal<boolean>;
  readonly edited: (text: LazyText) => void;
  /** Notes that the text from which the draft was made now has this revision. */
  readonly rebased: (to: Origin) => void;
  /** Returns the change that stores this text. */
  changeOf(text: LazyText): PolicyChange;
};

/** The initial texts of a draft. */
export type DraftTexts = Pick<Draft, 'base' | 'first'> & {
  readonly kept: KeptDraft | null;
  readonly rules: readonly RulePlace[];
};

/** Writes the stored policy as text, and finds its rules. A large policy takes about a second. */
export async function draftTexts(stored: Stored, signal: AbortSignal): Promise<DraftTexts> {
  const { record } = stored;
  const id = record?.id ?? null;
  const base = record === null ? '' : await inSlices(writeSteps(stored.document), signal);
  const found = keptDraft(id);
  if (found?.text === base) forgetDraft(id);
  const kept = found?.text === base ? null : found;
  const first = kept?.text ?? (record === null ? NEW_POLICY : base);
  const document =
    kept === null && isJson(first) ? jsonDocument(first, stored.document as Record<string, unknown>) : readText(first);
  return { base, first, kept, rules: await inSlices(rulePlaces(document), signal) };
}

export function startDraft(stored: Stored, { base, first, kept, rules: found }: DraftTexts): Draft {
  const id = stored.record?.id ?? null;
  const origin = signal<Origin>(
    kept !== null
      ? { etag: kept.etag, revision: kept.revision }
      : { etag: stored.etag, revision: stored.record?.revision ?? null },
  );
  const rules = signal(found);
  const survives = signal(true);
  const changeOf = (text: LazyText): PolicyChange => ({
    kind: 'text',
    id,
    text,
    // By default, only store the text of a policy that is not in force. The user can choose otherwise in the
    // review.
    activate: stored.record?.active === false ? false : null,
    etag: origin.peek().etag,
  });
  const { actor, snapshot } = started(
    draftChart.provide({
      actors: {
        judge: fromPromise(({ input, signal: cancelled }) =>
          judge(input, cancelled, async (document) => {
            rules.value = await inSlices(rulePlaces(document), cancelled);
          }),
        ),
        apply: fromPromise(async ({ input: { change, terms } }) => apply(change, terms)),
      },
    }),
    { change: changeOf(first), begin: kept !== null || stored.record === null ? 'edited' : 'clean' },
  );
  return {
    actor,
    snapshot,
    base,
    first,
    origin,
    rules,
    survives,
    changeOf,
    edited: (text) => {
      if (text.length === base.length && text.toString() === base) {
        forgetDraft(id);
        actor.send({ type: 'discarded', change: changeOf(base) });
        return;
      }
      survives.value = keepDraft(id, { text, ...origin.peek() });
      actor.send({ type: 'edited', change: changeOf(text) });
    },
    rebased: (to) => {
      const { change } = snapshot.peek().context;
      // Without edits there is no draft to assign: the page shows the newer stored text.
      if (change.kind !== 'text' || snapshot.peek().matches('clean')) return;
      origin.value = to;
      survives.value = keepDraft(id, { text: change.text, ...to });
      actor.send({ type: 'rebased', etag: to.etag });
    },
  };
}
