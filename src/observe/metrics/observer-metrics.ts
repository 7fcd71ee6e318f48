import type { Families } from './families.js';
import type { ObserverStats } from './stats.js';

/**
 * Creates the metrics of the wiretap, of findings and of the flow history. While the observer does not run,
 * the metrics without labels are 0 and the metrics with labels have no samples.
 */
export function observerMetrics({ gauge, counter }: Families) {
  const readers = gauge('weir_wiretap_readers', 'Current wiretap clients.');
  const messages = counter('weir_wiretap_messages_total', 'Messages sent to wiretap readers.');
  const lost = counter(
    'weir_wiretap_lost_total',
    'Messages that readers did not receive: `reader`, the reader was too slow; `kernel`, events were lost between kernel and node; `source_share`, the source exceeded its share; `service_plane`, the service plane had no room for more.',
    'where',
  );
  const observed = counter('weir_events_total', 'Events of the dataplane that were read, by type.', 'type');
  const merged = counter('weir_findings_merged_total', 'Observations that were merged into findings.');
  const entries = gauge('weir_findings_entries', 'Findings that are stored.');
  const gaps = counter('weir_findings_gaps_total', 'Findings of type `gap`: they report that events were lost.');
  const overflowed = counter(
    'weir_findings_overflowed_total',
    'Observations that were counted in a coarser finding, or in none, because a limit was reached.',
  );
  const seenFlows = gauge('weir_flow_history_flows', 'Seen flows that are recorded (`flow_history`).');
  const foldedFlows = gauge(
    'weir_flow_history_folded',
    'Recorded rows that stand for several flows, because their source has used its share.',
  );
  const notRecorded = counter(
    'weir_flow_history_not_recorded_total',
    'Events that were not recorded, because their source has used its share for folded flows too.',
  );
  const delivered = counter('weir_findings_sink_delivered_total', 'Findings delivered to a sink, by its name.', 'sink');
  const failed = counter('weir_findings_sink_failed_total', 'Failed deliveries to a sink, by its name.', 'sink');
  const dropped = counter(
    'weir_findings_sink_dropped_total',
    'Findings dropped for a sink because too many waited, by its name.',
    'sink',
  );
  const waiting = gauge('weir_findings_sink_waiting', 'Findings that wait for a sink, by its name.', 'sink');
  const ofSinks = [delivered, failed, dropped, waiting];
  const ofFlows = [seenFlows, foldedFlows, notRecorded];
  const all = [readers, messages, lost, observed, merged, entries, gaps, overflowed, ...ofFlows, ...ofSinks];

  return {
    stats(stats: ObserverStats | null) {
      for (const metric of all) metric.reset();
      if (stats === null) return;
      readers.set(stats.readers);
      messages.inc(stats.messages);
      lost.inc({ where: 'reader' }, stats.lostReader);
      lost.inc({ where: 'kernel' }, stats.lostKernel);
      lost.inc({ where: 'source_share' }, stats.lostSourceShare);
      lost.inc({ where: 'service_plane' }, stats.lostServicePlane);
      for (const [type, count] of Object.entries(stats.events)) observed.inc({ type }, count);
      merged.inc(stats.findings.merged);
      entries.set(stats.findings.entries);
      gaps.inc(stats.findings.gaps);
      overflowed.inc(stats.findings.overflowed);
      seenFlows.set(stats.flowHistory.flows);
      foldedFlows.set(stats.flowHistory.folded);
      notRecorded.inc(stats.flowHistory.notRecorded);
      for (const { name: sink, ...counts } of stats.sinks) {
        delivered.inc({ sink }, counts.delivered);
        failed.inc({ sink }, counts.failed);
        dropped.inc({ sink }, counts.dropped);
        waiting.set({ sink }, counts.waiting);
      }
    },
  };
}
