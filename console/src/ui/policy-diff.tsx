import { addressesText } from '../address-set.js';
import type { Schemas } from '../api/client.js';
import { Empty } from './parts.js';
import { DeciderName, RegionRow, RuleName, sentence } from './regions.js';
import { SeenFlows } from './seen-flows.js';

type PolicyDiff = Schemas['PolicyDiff'];
type DiffRegion = PolicyDiff['regions'][number];
type Cause = Pick<PolicyDiff['causes'][number], 'part' | 'change' | 'source_group' | 'rule'>;

const EFFECTS: readonly (readonly [effect: DiffRegion['effect'], title: string, says: string])[] = [
  ['opens', 'Opens', 'denied before, pass now'],
  ['closes', 'Closes', 'pass before, denied now'],
  ['inspection', 'Inspection', 'the service plane begins or ceases to inspect them'],
  ['audit', 'Reports', 'pass as before, and are reported otherwise'],
];

/**
 * Shows the flows that a change opens, closes or changes otherwise. Null: the node had no time to compare the
 * policies.
 */
export function PolicyDiffView({ diff }: { readonly diff: PolicyDiff | null }) {
  if (diff === null)
    return (
      <p class="problem warning">
        The node could not compare the policies in time. The change is valid, but what it does to flows is not known.
      </p>
    );
  return (
    <>
      <p class={`sentence diff-${diff.verdict}`}>{sentence(diff.summary)}</p>
      {!diff.complete && (
        <p class="problem warning">
          The comparison is not complete. Everything below is true, but there can be more changes
          {diff.left === null ? '.' : ` for the sources ${addressesText(diff.left)}.`}
        </p>
      )}
      {diff.notices.map(({ code, text }) => (
        <p key={`${code} ${text}`} class="problem warning">
          {sentence(text)}
        </p>
      ))}
      {diff.verdict !== 'equal' && <SeenFlows impact={diff.impact} unavailable={diff.impact_unavailable} />}
      {EFFECTS.map(([effect, title, says]) => {
        const regions = diff.regions.filter((region) => region.effect === effect);
        if (regions.length === 0) return null;
        return (
          <section key={effect} class={`diff-part ${effect}`}>
            <h3>
              {title} <span class="muted">{says}</span>
            </h3>
            <ul class="regions">
              {regions.map((region) => (
                <RegionRow key={JSON.stringify(region)} region={region}>
                  <p class="before-after">
                    <DeciderName decider={region.before} />
                    <span>
                      <span aria-hidden="true">→</span>
                      <span class="visually-hidden">, now </span>
                    </span>
                    <DeciderName decider={region.after} />
                  </p>
                </RegionRow>
              ))}
            </ul>
          </section>
        );
      })}
      {diff.regions_omitted > 0 && (
        <p class="muted">
          {diff.regions_omitted} further regions are not listed. The command <code>weir policy diff --all</code> lists
          more.
        </p>
      )}
      <Lookups diff={diff} />
      <Causes diff={diff} />
      {diff.verdict === 'equal' && diff.lookups.length === 0 && (
        <Empty>The text can still differ, for example in the ids of rules or in their order.</Empty>
      )}
    </>
  );
}

function Lookups({ diff: { lookups, lookups_omitted: omitted } }: { readonly diff: PolicyDiff }) {
  if (lookups.length === 0) return null;
  return (
    <section class="diff-part">
      <h3>DNS lookups</h3>
      <ul class="regions">
        {lookups.map((lookup) => (
          <li key={JSON.stringify(lookup)} class="region">
            <strong>{lookup.effect}</strong> lookups of{' '}
            <code>{lookup.names === '*' ? 'all other names' : lookup.names}</code> by{' '}
            <code>{addressesText(lookup.sources)}</code>{' '}
            <span class="muted">
              ({lookup.before.decision} before, {lookup.after.decision} now)
            </span>
          </li>
        ))}
      </ul>
      {omitted > 0 && <p class="muted">{omitted} further lookups are not listed.</p>}
    </section>
  );
}

const CHANGES: Readonly<Record<Cause['change'], string>> = {
  added: 'was added',
  removed: 'was removed',
  changed: 'changed',
  moved: 'moved in the order of evaluation',
  sources: 'has other sources',
};

const causeEffect = ({ opens, closes }: PolicyDiff['causes'][number]): string => {
  const effects = [...(opens === '0' ? [] : ['opens flows']), ...(closes === '0' ? [] : ['closes flows'])];
  return effects.length === 0 ? '' : `(${effects.join(', ')})`;
};

function Causes({ diff: { causes, causes_omitted: omitted } }: { readonly diff: PolicyDiff }) {
  if (causes.length === 0) return null;
  return (
    <details class="diff-part">
      <summary>
        Causes: {causes.length + omitted} {causes.length + omitted === 1 ? 'part' : 'parts'} of the policy
      </summary>
      <ul class="plain-list">
        {causes.map((cause) => (
          <li key={JSON.stringify(cause)}>
            {cause.part === 'group' ? (
              `The source group ${cause.source_group}`
            ) : (
              <RuleName group={cause.part === 'policy_default' ? null : cause.source_group} rule={cause.rule} />
            )}{' '}
            {CHANGES[cause.change]} <span class="muted">{causeEffect(cause)}</span>
          </li>
        ))}
      </ul>
      {omitted > 0 && <p class="muted">{omitted} further causes are not listed.</p>}
    </details>
  );
}
