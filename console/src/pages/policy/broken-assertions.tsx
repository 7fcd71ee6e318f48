import type { Schemas } from '../../api/client.js';
import { Panel } from '../../ui/parts.js';
import { DeciderName, RegionRow, sentence } from '../../ui/regions.js';

type Failure = Schemas['AssertionFailure'];

const EFFECTS: Readonly<Record<Failure['effect'], string>> = {
  refuses: 'The node refuses the change because of it.',
  overridden: 'The change breaks it on purpose.',
  warns: 'It only warns.',
};

/** Lists the assertions that would be false after a change, with example flows. */
export function BrokenAssertions({ failures }: { readonly failures: readonly Failure[] }) {
  return (
    <Panel title={failures.length === 1 ? '1 assertion does not hold' : `${failures.length} assertions do not hold`}>
      {failures.map((failure) => (
        <div key={failure.id} class={`problem ${failure.effect === 'refuses' ? 'error' : 'warning'}`}>
          <strong>{failure.id}</strong> <span>{sentence(failure.message)}</span>{' '}
          <span class="muted">
            {EFFECTS[failure.effect]} {failure.before === 'broken' && 'It was broken before, too.'}
            {failure.result === 'unknown' && 'The check could not be completed.'}
          </span>
          <AssertionRegions regions={failure.regions} omitted={failure.regions_omitted} />
        </div>
      ))}
    </Panel>
  );
}

type RegionsProps = { readonly regions: Failure['regions']; readonly omitted: number };

/** Lists the flows that contradict an assertion. */
export function AssertionRegions({ regions, omitted }: RegionsProps) {
  if (regions.length === 0) return null;
  return (
    <ul class="regions">
      {regions.slice(0, 5).map((region) => (
        <RegionRow key={JSON.stringify(region)} region={region}>
          <p>
            <DeciderName decider={region.decider} />
          </p>
        </RegionRow>
      ))}
      {regions.length + omitted > 5 && <li class="muted">{regions.length + omitted - 5} further regions.</li>}
    </ul>
  );
}
