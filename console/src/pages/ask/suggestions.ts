import { api, bodyOf, type Schemas } from '../../api/client.js';
import { type Polled, usePolled } from '../../api/polled.js';
import type { FieldName } from './question.js';

/** The values of a policy that the page suggests for each input field. */
export type Suggestions = Readonly<Record<FieldName, readonly string[]>>;

const SERVICES = ['tcp/22', 'tcp/80', 'tcp/443', 'udp/53', 'icmp/8', 'tcp', 'udp', 'icmp'];
/**
 * The maximum number of suggestions. A browser shows only a few at a time, and more of them slow down the
 * page.
 */
const MOST = 500;

/**
 * Returns the source groups, networks, names and services of a stored policy as suggestions. Reads only the
 * first rules of a large policy.
 */
export function useSuggestions(id: string | undefined): Polled<Suggestions> {
  return usePolled(
    async (signal) => {
      if (id === undefined) return { from: [], to: [], service: SERVICES };
      const { policy } = await bodyOf(api.GET('/api/v1/policies/{id}', { params: { path: { id } }, signal }));
      return suggestionsOf(policy.source_groups ?? []);
    },
    null,
    id,
  );
}

type Group = NonNullable<Schemas['StoredPolicyConfig']['source_groups']>[number];

function suggestionsOf(groups: readonly Group[]): Suggestions {
  const from = new Set<string>();
  const to = new Set<string>();
  const service = new Set(SERVICES);
  for (const { id, sources, rules = [] } of groups) {
    if (from.size > MOST) break;
    from.add(id);
    for (const network of sources.cidrs ?? []) from.add(network);
    for (const address of sources.ips ?? []) from.add(address);
    for (const { match } of rules.slice(0, MOST)) {
      if (to.size > MOST) break;
      for (const network of match.dst_cidrs ?? []) to.add(network);
      for (const address of match.dst_ips ?? []) to.add(address);
      if (match.dns_hostname !== undefined && !match.dns_hostname.includes('*')) to.add(match.dns_hostname);
      const proto = match.proto === undefined || match.proto === 'any' ? 'tcp' : match.proto;
      for (const port of match.dst_ports ?? []) service.add(`${proto}/${port}`);
    }
  }
  if ([...from, ...to].some((text) => text.includes(':'))) service.add('icmpv6/128');
  return { from: [...from].slice(0, MOST), to: [...to].slice(0, MOST), service: [...service].slice(0, MOST) };
}
