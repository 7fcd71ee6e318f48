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

/** The draft of one policy, from the text that is stored. */
export type Draft = {
  readonly actor: Actor<typeof draftChart>;
  readonly snapshot: ReadonlySignal<SnapshotFrom<typeof draftChart>>;
  /** The stored text. */
  readonly base: string;
  /** The text with which the editor begins: the kept draft, else the stored text. */
  readonly first: string;
  /** The ETag and the revision of the stored text from which the draft was made. */
  readonly origin: Signal<{ readonly etag: string | null; readonly revision: number | null }>;
  /** The places of the rules in the text that was read last. */
  readonly rules: ReadonlySignal<readonly RulePlace[]>;
  /** False if a reload of the page would lose the draft. */
  readonly survives: ReadonlySignal<boolean>;
  readonly edited: (text: LazyText) => void;
  /** Judges the text again, for example after the draft was made from a newer stored text. */
  changeOf(text: LazyText): PolicyChange;
};

/** The texts with which a draft begins. */
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
  const origin = signal(
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
    // The text of a policy that is not in force is only stored, unless the person decides otherwise in the
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
  };
}
