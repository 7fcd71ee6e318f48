import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { full, short } from '../../format.js';
import { addressOf, go, query } from '../../router.js';
import { Empty, Failure, Panel } from '../../ui/parts.js';
import { Ago, Lasting } from '../../ui/time.js';
import { type Hit, hitOf, type RuleHits } from './hits.js';
import type { RulePlace } from './policy-text.js';

type Props = {
  readonly rules: readonly RulePlace[];
  readonly hits: RuleHits | null;
  readonly failure: unknown;
  readonly isActive: boolean;
  readonly onGo: (offset: number) => void;
  readonly onShown: (rules: readonly RulePlace[]) => void;
};
const SHOWN = 100;

/** A list of the rules in the text with their hit counts. A button limits it to the rules without hits. */
export function RuleList({ rules, hits, failure, isActive, onGo, onShown }: Props) {
  const words = useSignal('');
  const isUnused = query.value.get('show') === 'unused';
  const sought = words.value.trim().toLowerCase();
  const isFiltered = sought !== '' || isUnused;
  const matching = !isFiltered
    ? rules
    : rules.filter(({ group, rule }) => {
        if (isUnused && hitOf(hits, group, rule)?.unused !== true) return false;
        return sought === '' || `${group} / ${rule}`.toLowerCase().includes(sought);
      });
  const shown = matching.slice(0, SHOWN);
  const last = useRef<readonly RulePlace[]>([]);
  useEffect(() => {
    const isSame = shown.length === last.current.length && shown.every((each, at) => each === last.current[at]);
    if (isSame) return;
    last.current = shown;
    onShown(shown);
  });
  const defaults = (hits?.items ?? []).filter(({ rule }) => rule === null);
  const show = (event: Event) => {
    const rest = Object.fromEntries([...query.value].filter(([name]) => name !== 'show'));
    const isChecked = (event.currentTarget as HTMLInputElement).checked;
    go(addressOf('policy', isChecked ? { ...rest, show: 'unused' } : rest), { replace: true });
  };
  return (
    <Panel title={`Rules and what uses them`} class="rule-list">
      <div class="rule-filter">
        <input
          data-search
          aria-label="Find a rule"
          placeholder="Find a rule"
          value={words.value}
          onInput={(event) => {
            words.value = event.currentTarget.value;
          }}
        />
        {isActive && (
          <label>
            <input type="checkbox" checked={isUnused} onChange={show} /> only unused
          </label>
        )}
      </div>
      <Failure failure={failure} />
      {matching.length === 0 ? (
        <Empty>
          {rules.length === 0
            ? 'The text has no rule.'
            : isUnused && sought === ''
              ? 'Every rule has decided something. None is unused.'
              : 'No rule of the text matches.'}
        </Empty>
      ) : (
        <ul class="plain-list">
          {shown.map(({ group, rule, from }) => (
            <li key={`${group} ${rule} ${from}`}>
              <button type="button" class="link" onClick={() => onGo(from)}>
                <span class="muted">{group} /</span> {rule}
              </button>
              <HitText hit={hitOf(hits, group, rule)} />
            </li>
          ))}
        </ul>
      )}
      {matching.length > SHOWN && (
        <p class="muted">{full(matching.length - SHOWN)} more. Type a part of a name to find a rule.</p>
      )}
      {!isUnused && sought === '' && defaults.length > 0 && (
        <ul class="plain-list defaults">
          {defaults.slice(0, SHOWN).map((hit) => (
            <li key={String(hit.source_group)}>
              <span>{hit.source_group === null ? 'default of the policy' : `default of ${hit.source_group}`}</span>
              <HitText hit={hit} />
            </li>
          ))}
        </ul>
      )}
      {isActive && hits !== null && (
        <p class="muted">
          Packets since <Ago at={hits.since} />.
          {hits.isPart && ' Of this many rules, only those that are shown have counts.'}
          {hits.isPartial && ' Not all nodes of the cluster responded.'}
        </p>
      )}
      {!isActive && <p class="muted">This policy is not in force, so nothing uses its rules.</p>}
    </Panel>
  );
}

function HitText({ hit }: { readonly hit: Hit | undefined }) {
  if (hit === undefined) return <span class="muted">no count</span>;
  if (hit.unused)
    return (
      <span class="is-audit">
        unused
        {hit.unused_since !== null && (
          <>
            {' '}
            for <Lasting at={hit.unused_since} />
          </>
        )}
      </span>
    );
  return (
    <span title={`${full(hit.packets)} packets`}>
      {short(hit.packets)}
      {hit.last_hit !== null && (
        <span class="muted">
          {', '}
          <Ago at={hit.last_hit} />
        </span>
      )}
    </span>
  );
}
