import { hasDefaultRoute } from '#dataplane/routes/routes.js';
import { listRules } from '#dataplane/routes/routing-rules.js';

const TABLE_LOCAL = 255;

/**
 * Returns a warning if the node has no default route. With `dns.transparent`, the datapath then does not
 * divert DNS queries to servers without a route: it cannot distinguish these servers from addresses of the
 * node. The kernel drops the queries.
 */
export function unroutableLookupWarnings(): string[] {
  const tables = new Set(
    listRules().flatMap(({ action, table, mark }) => (action === 'table' && mark === 0 ? [table] : [])),
  );
  if ([...tables].some((table) => table !== TABLE_LOCAL && hasDefaultRoute(table))) return [];
  return [
    'the node has no default route, so the kernel drops DNS queries to servers without a route, although dns.transparent is true: add a default route, or run `ip route add unreachable default metric 4294967295`',
  ];
}
