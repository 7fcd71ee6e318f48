import { z } from 'zod';
import { relativeTime } from '#cli/output/relative-time.js';
import { styleOf } from '#cli/output/style.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';

const count = z.number();
export const statusSchema = z.object({
  name: z.string(),
  state: z.string(),
  since: z.string().nullable(),
  last_error: z.object({ reflector: z.string(), reason: z.string(), at: z.string() }).nullable(),
  objects: z.object({ pods: count, nodes: count, namespaces: count }),
  selectors: z.array(
    z.object({
      selector: z.looseObject({ integration: z.string() }),
      resolved: z.boolean(),
      addresses: count,
      networks: count,
    }),
  ),
  warnings: z.array(z.object({ code: z.string(), message: z.string() })),
  stale: z.boolean(),
});
export type IntegrationStatus = z.infer<typeof statusSchema>;

/** Returns the status of integrations as a table; with `details`, also their selectors and warnings. */
export function statusText(items: readonly IntegrationStatus[], details: boolean, terminal: Terminal): string {
  const style = styleOf(terminal);
  const rows = items.map(({ name, state, since, stale, objects, selectors, last_error: error }) => [
    name,
    state === 'watching' ? style.good(state) : state === 'unused' ? state : style.bad(state),
    since === null ? '-' : relativeTime(since),
    stale ? style.warn('stale') : 'fresh',
    String(objects.pods),
    `${selectors.filter(({ resolved }) => resolved).length}/${selectors.length}`,
    error === null ? '-' : `${relativeTime(error.at)}, ${error.reflector}: ${error.reason}`,
  ]);
  const overview = table(['NAME', 'STATE', 'SINCE', 'OBJECTS', 'PODS', 'RESOLVED', 'LAST ERROR'], rows);
  return details ? overview + items.map(detailsOf).join('') : overview;
}

function detailsOf({ selectors, warnings }: IntegrationStatus): string {
  const rows = selectors.map(({ selector: { integration: _, ...selector }, resolved, addresses, networks }) => [
    resolved ? 'resolved' : 'not resolved',
    String(addresses),
    String(networks),
    JSON.stringify(selector),
  ]);
  const listed = rows.length === 0 ? '' : `\n${table(['SELECTOR', 'ADDRESSES', 'NETWORKS', ''], rows)}`;
  return listed + warnings.map(({ message }) => `warning: ${message}\n`).join('');
}
