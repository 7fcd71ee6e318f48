import { useEffect } from 'preact/hooks';
import type { PendingReport } from '../../charts/draft.chart.js';
import { node } from '../../node.js';

/** Sends each report of the node about the unconfirmed change to the actor of a draft. */
export function useReports(actor: { send(event: { readonly type: 'reported' } & PendingReport): void }): void {
  const report = node.report.value;
  useEffect(() => {
    if (report === null) return;
    actor.send({ type: 'reported', generation: report.stats.generation, pending: report.pending });
  }, [report, actor]);
}
