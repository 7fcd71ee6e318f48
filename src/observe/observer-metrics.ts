import type { Families } from './families.js';
import type { ObserverStats } from './stats.js';

/** Metrics of wiretap and findings. They are absent while no observer runs. */
export function observerMetrics({ gauge, counter }: Families) {
  const readers = gauge('weir_wiretap_readers', 'Clients that read the wiretap.');
  const messages = counter('weir_wiretap_messages_total', 'Messages that were given to readers of the wiretap.');
  const lost = counter(
    'weir_wiretap_lost_total',
    'Messages that readers did not get: `reader`, it was too slow; `kernel`, events were lost on their way from the kernel; `source_share`, the source had had its share; `service_plane`, that had no room for more.',
    'where',
  );
  const observed = counter('weir_events_total', 'Events of the dataplane that were read, by type.', 'type');
  const merged = counter('weir_findings_merged_total', 'Observations that were merged into findings.');
  const entries = gauge('weir_findings_entries', 'Findings that are kept.');
  const gaps = counter('weir_findings_gaps_total', 'Findings which say that events were lost before.');
  const overflowed = counter(
    'weir_findings_overflowed_total',
    'Observations that were counted in a coarser finding, or in none, for want of room.',
  );
  const delivered = counter('weir_findings_sink_delivered_total', 'Findings that a sink took, by its name.', 'sink');
  const failed = counter(
    'weir_findings_sink_failed_total',
    'Deliveries that a sink did not take, by its name.',
    'sink',
  );
  const dropped = counter('weir_findings_sink_dropped_total', 'Findings given up for a sink, by its name.', 'sink');
  const waiting = gauge('weir_findings_sink_waiting', 'Findings that wait for a sink, by its name.', 'sink');
  const ofSinks = [delivered, failed, dropped, waiting];
  const all = [readers, messages, lost, observed, merged, entries, gaps, overflowed, ...ofSinks];

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
      for (const { name: sink, ...counts } of stats.sinks) {
        delivered.inc({ sink }, counts.delivered);
        failed.inc({ sink }, counts.failed);
        dropped.inc({ sink }, counts.dropped);
        waiting.set({ sink }, counts.waiting);
      }
    },
  };
}
