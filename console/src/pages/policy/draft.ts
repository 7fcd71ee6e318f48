import { type ReadonlySignal, type Signal, signal } from '@preact/signals';
import { type Actor, fromPromise, type SnapshotFrom } from 'xstate';
import type { Schemas } from '../../api/client.js';
import { draftChart, type LazyText, type PolicyChange } from '../../charts/draft.chart.js';
import { started } from '../../charts/signal-of.js';
import { forgetDraft, keepDraft, keptDraft } from './kept-drafts.js';
import { apply, judge, type Stored } from './policy-requests.js';
import { type RulePlace, readText, rulePlaces, writeText } from './policy-text.js';

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

export function startDraft(stored: Stored, record: Schemas['PolicyRecord'] | null): Draft {
  const id = record?.id ?? null;
  const base = record === null ? '' : writeText(stored.document);
  const kept = keptDraft(id);
  if (kept?.text === base) forgetDraft(id);
  const isDraft = kept !== null && kept.text !== base;
  const first = isDraft ? kept.text : record === null ? NEW_POLICY : base;
  const origin = signal(
    isDraft
      ? { etag: kept.etag, revision: kept.revision }
      : { etag: stored.etag, revision: stored.record?.revision ?? null },
  );
  const rules = signal<readonly RulePlace[]>([]);
  const survives = signal(true);
  const changeOf = (text: LazyText): PolicyChange => ({
    kind: 'text',
    id,
    text,
    // The text of a policy that is not in force is only stored, unless the person decides otherwise in the
    // review.
    activate: record?.active === false ? false : null,
    etag: origin.peek().etag,
  });
  const { actor, snapshot } = started(
    draftChart.provide({
      actors: {
        judge: fromPromise(({ input, signal: cancelled }) =>
          judge(input, cancelled, (document) => {
            rules.value = rulePlaces(document);
          }),
        ),
        apply: fromPromise(async ({ input: { change, terms } }) => apply(change, terms)),
      },
    }),
    { change: changeOf(first), begin: isDraft || record === null ? 'edited' : 'clean' },
  );
  rules.value = rulePlaces(readText(first));
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
      survives.value = keepDraft(id, { text: text.toString(), ...origin.peek() });
      actor.send({ type: 'edited', change: changeOf(text) });
    },
  };
}
