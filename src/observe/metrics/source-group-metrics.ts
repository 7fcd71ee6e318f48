import { COUNTED_VERDICTS, GROUP_COUNTS, type GroupTraffic } from '#contracts/datapath/datapath.js';
import type { Families } from './families.js';

/** The metrics have no samples while the traffic of the source groups cannot be read. */
export function sourceGroupMetrics({ gauge, counter }: Families) {
  const unlisted = gauge(
    'weir_source_group_unlisted',
    'Source groups of the active policy without series of their own, because of the limit `metrics.source_groups`.',
  );
  const labels = ['scope', 'source_group', 'verdict'] as const;
  const packets = counter(
    'weir_source_group_packets_total',
    'Packets that the rules and the default of a source group decided, by verdict. A connection, request or lookup that was decided outside the kernel counts as one packet.',
    ...labels,
  );
  const bytes = counter('weir_source_group_bytes_total', 'Bytes of these packets.', ...labels);

  return {
    traffic(traffic: GroupTraffic | null) {
      for (const metric of [unlisted, packets, bytes]) metric.reset();
      if (traffic === null) return;
      const { groups, counts } = traffic;
      unlisted.set(traffic.unlisted);
      const rows = [
        ...groups.map((group) => ['group', group] as const),
        ['other_groups', ''] as const,
        ['policy_default', ''] as const,
      ];
      for (const [row, [scope, group]] of rows.entries()) {
        for (const [column, verdict] of COUNTED_VERDICTS.entries()) {
          const at = row * GROUP_COUNTS + 2 * column;
          packets.inc({ scope, source_group: group, verdict }, counts[at]);
          bytes.inc({ scope, source_group: group, verdict }, counts[at + 1]);
        }
      }
    },
  };
}
