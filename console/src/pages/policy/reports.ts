import { useEffect } from 'preact/hooks';
import type { PendingReport } from '../../charts/draft.chart.js';
import { node } from '../../node.js';

/** Tells a draft what the node reports about the pending change. */
export function useReports(actor: { send(event: { readonly type: 'reported' } & PendingReport): void }): void {
  const report = node.report.value;
  useEffect(() => {
    if (report === null) return;
    actor.send({ type: 'reported', generation: report.stats.generation, pending: report.pending });
  }, [report, actor]);
}
