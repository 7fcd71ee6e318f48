import type { DatapathStats } from '#contracts/datapath/datapath.js';
import type { DnsStats } from '#contracts/dns/dns-stats.js';
import type { ServicePlaneStats } from '#contracts/service-plane/service-plane-stats.js';
import type { CheckName } from '#statecharts/readiness.js';

/** The readiness checks that can fail for reasons other than a faulty policy. A roll-out ignores them. */
const NOT_FROM_POLICY: readonly CheckName[] = ['cluster', 'policy_replication', 'draining'];

/** Returns the names of the failed checks whose cause can be the policy of the node. */
export function failedChecks(checks: readonly { readonly name: CheckName; readonly ok: boolean }[]): string[] {
  return checks.filter(({ name, ok }) => !ok && !NOT_FROM_POLICY.includes(name)).map(({ name }) => name);
}

/** Returns the number of denied packets, lookups, connections, requests and responses since the start. */
export function deniedBy(
  datapath: DatapathStats | null,
  dns: DnsStats | null,
  plane: ServicePlaneStats | null,
): number {
  const inspected = plane === null ? 0 : plane.deny + plane.requestsDeny + plane.responsesDeny;
  return Number(datapath?.verdicts.deny.packets ?? 0) + (dns?.queriesDeny ?? 0) + inspected;
}
