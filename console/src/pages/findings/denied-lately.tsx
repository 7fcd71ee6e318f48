import '../../style/findings.css';
import { addressOf } from '../../router.js';
import { Empty, Failure, Panel } from '../../ui/parts.js';
import { useStill } from '../../ui/still.js';
import { DeniedTable } from './denied.js';
import { folded } from './folded.js';
import { DENIED_TYPES, isSwitchedOff, useFindings } from './read.js';

const ROWS = 8;
const HOUR_MS = 3_600_000;
const QUERY = { finding_type: DENIED_TYPES };

/** A list of the latest denied traffic. Each row has a link to its explanation. */
export function DeniedLately() {
  const found = useFindings(QUERY, HOUR_MS);
  const { shown: page, handlers } = useStill(found.data.value, '');
  if (isSwitchedOff(found.failure.value))
    return <Empty>Performance mode is off, so that the node lists no denied traffic. Fill in the flow above.</Empty>;
  return (
    <Panel
      title="Denied in the last hour"
      actions={
        <a class="button" href={addressOf('findings')}>
          All findings
        </a>
      }
    >
      <Failure failure={found.failure.value} />
      {page === null ? (
        <p aria-busy="true">…</p>
      ) : (
        <section class="scroll" aria-label="Denied in the last hour" {...handlers}>
          <DeniedTable denied={folded(page.findings).slice(0, ROWS)} isFiltered={false} />
        </section>
      )}
    </Panel>
  );
}
