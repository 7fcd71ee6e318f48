import { useSignal } from '@preact/signals';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { draftOf, referenceOf } from '../../asked-policy.js';
import { addressOf, go } from '../../router.js';
import { inSlices } from '../../slices.js';
import { Empty, Failure, Panel } from '../../ui/parts.js';
import { RegionRow, RuleName, sentence } from '../../ui/regions.js';
import { keepDraft, keptDraft } from './kept-drafts.js';
import { editText } from './policy-edits.js';
import { storedPolicy } from './policy-requests.js';
import { writeSteps } from './policy-text.js';
import { etagOf } from './stored-policies.js';

type PolicyRecord = Schemas['PolicyRecord'];
type Found = Schemas['PolicyLint'];
type Finding = Found['findings'][number];

const CHECKS: Readonly<Record<Finding['check'], readonly [title: string, says: string]>> = {
  unreachable: ['Unreachable', 'No flow and no lookup reaches them, because earlier rules decide everything.'],
  removable: ['Removable', 'Without them, later rules and defaults decide the same flows in the same way.'],
  mergeable: ['Mergeable', 'Rules that are alike but for one list of matchers.'],
  conflict: ['Conflicts', 'An allow and a deny match common flows, so that their order decides.'],
};

/**
 * Lists rules that have no effect or that can be simplified. The check takes time, so it runs only on
 * request.
 */
export function Lint({ record }: { readonly record: PolicyRecord | null }) {
  const found = useSignal<Found | null>(null);
  const failure = useSignal<unknown>(null);
  const isBusy = useSignal(false);
  const id = record?.id ?? null;
  const draft = keptDraft(id);
  const check = async () => {
    isBusy.value = true;
    failure.value = null;
    try {
      const policy = await referenceOf(draft === null ? (id ?? '') : draftOf(id));
      found.value = await bodyOf(api.POST('/api/v1/policy/lint', { body: { policy } }));
    } catch (error) {
      failure.value = error;
    }
    isBusy.value = false;
  };
  const take = async (edits: readonly Schemas['LintEdit'][]) => {
    try {
      if (record === null && draft === null) return;
      const text =
        draft?.text ??
        (await inSlices(writeSteps((await storedPolicy(id ?? '', new AbortController().signal)).document)));
      const origin = draft ?? { etag: record === null ? null : etagOf(record), revision: record?.revision ?? null };
      const { etag, revision } = origin;
      keepDraft(id, { etag, revision, text: await inSlices(editText(text, edits)) });
      go(addressOf('policy', { id: id ?? 'new' }));
    } catch (error) {
      failure.value = error;
    }
  };
  if (record === null && draft === null) return <Empty>A policy that is not stored yet has nothing to check.</Empty>;
  const harmless = found.value?.findings.filter((finding) => finding.check !== 'conflict') ?? [];
  return (
    <div class="stack">
      <Panel>
        <p>
          Lint finds rules that no flow reaches, that can be removed or merged without any change, and rules that
          contradict each other. {draft !== null && 'It checks your draft.'}
        </p>
        <button type="button" class="primary" disabled={isBusy.value} onClick={() => void check()}>
          {isBusy.value ? 'The node checks…' : found.value === null ? 'Check the rules' : 'Check again'}
        </button>
        <Failure failure={failure.value} />
      </Panel>
      {found.value !== null && <Summary found={found.value} harmless={harmless} onTake={take} />}
      {found.value !== null &&
        (Object.keys(CHECKS) as Finding['check'][]).map((name) => (
          <Findings key={name} name={name} found={found.value as Found} onTake={take} />
        ))}
    </div>
  );
}

type SummaryProps = {
  readonly found: Found;
  readonly harmless: readonly Finding[];
  readonly onTake: (edits: readonly Schemas['LintEdit'][]) => Promise<void>;
};

function Summary({ found, harmless, onTake }: SummaryProps) {
  const { together, complete, left } = found;
  return (
    <Panel>
      <p class="sentence">
        {found.findings.length === 0
          ? 'Every rule decides something, and none contradicts another.'
          : sentence(found.summary)}
      </p>
      {!complete && (
        <p class="problem warning">
          The check is not complete. What it found is true, but it did not look at{' '}
          {left.map(({ check, source_groups: groups }) => `${groups.join(', ')} (${check})`).join('; ')}.
        </p>
      )}
      {harmless.length > 1 && (
        <p>
          All {together.edits} edits that change nothing, together: {together.summary}.{' '}
          <button type="button" onClick={() => void onTake(harmless.map(({ edit }) => edit))}>
            Take all {together.edits} into the draft
          </button>
        </p>
      )}
    </Panel>
  );
}

type FindingsProps = {
  readonly name: Finding['check'];
  readonly found: Found;
  readonly onTake: (edits: readonly Schemas['LintEdit'][]) => Promise<void>;
};

function Findings({ name, found: { findings, omitted }, onTake }: FindingsProps) {
  const list = findings.filter(({ check }) => check === name);
  if (list.length === 0) return null;
  const [title, says] = CHECKS[name];
  return (
    <Panel title={`${title}: ${list.length + omitted[name]}`}>
      <p class="muted">{says}</p>
      <ul class="regions">
        {list.map((finding) => (
          <li key={`${finding.source_group} ${finding.rules.join(' ')}`} class="region lint-finding">
            <div>
              <p>
                {finding.rules.length === 0 ? (
                  <strong>{finding.source_group}</strong>
                ) : (
                  finding.rules.map((rule, at) => (
                    <span key={rule}>
                      {at > 0 && ', '}
                      <RuleName group={finding.source_group} rule={rule} />
                    </span>
                  ))
                )}
              </p>
              <p>{sentence(finding.message)}</p>
              <p class="muted">
                {editWords(finding.edit)}: {finding.diff.summary}.
              </p>
              {finding.region !== null && (
                <ul class="regions">
                  <RegionRow region={finding.region} />
                </ul>
              )}
            </div>
            <button type="button" onClick={() => void onTake([finding.edit])}>
              Take it into the draft
            </button>
          </li>
        ))}
      </ul>
      {omitted[name] > 0 && (
        <p class="muted">{omitted[name]} more are not listed. Apply or correct these, and check again.</p>
      )}
    </Panel>
  );
}

function editWords(edit: Schemas['LintEdit']): string {
  switch (edit.edit) {
    case 'remove_group':
      return `Remove the source group ${edit.source_group}`;
    case 'remove_rule':
      return `Remove ${edit.rule}`;
    case 'replace_rule':
      return `Give ${edit.rule} ${Object.entries(edit.match)
        .map(([key, value]) => `${key}: ${JSON.stringify(value)}`)
        .join(', ')}, and remove ${edit.remove.join(', ')}`;
    case 'move_rule':
      return `If ${edit.rule} stood before ${edit.before}`;
  }
}
