import { z } from 'zod';
import type { Client } from '#cli/client/client.js';
import { parseReply } from '#cli/client/remote.js';

/**
 * Maps the placeholder of a flag or argument in help texts to the fixed list of values that the API accepts.
 * A test compares these lists with those of the API.
 */
export const KNOWN_VALUES: Readonly<Record<string, readonly string[]>> = {
  'finding-type': [
    ...['l4_deny', 'icmp_deny', 'dns_deny', 'tls_deny', 'http_deny', 'auth_denied'],
    ...['config_change', 'gap', 'cluster_contradiction', 'address_shared', 'value_unreadable'],
  ],
  'message-type': ['flow', 'flow_end', 'flow_suspend', 'flow_resume', 'verdict', 'dns', 'tls', 'http'],
  verdict: ['allow', 'deny', 'audit', 'redirect'],
  'flow-verdict': ['allow', 'deny', 'audit', 'redirect'],
  'flow-state': [
    ...['tcp_syn_sent', 'tcp_syn_received', 'tcp_established', 'tcp_half_closed', 'tcp_closing', 'tcp_reset'],
    ...['udp_opened', 'udp_replied', 'icmp_opened', 'icmp_replied', 'other_opened', 'other_replied'],
  ],
  protocol: ['tcp', 'udp', 'icmp'],
  'lint-check': ['unreachable', 'removable', 'mergeable', 'conflict'],
};

/** Placeholders in help texts of flags and arguments whose values must be requested from the node. */
export const NODE_VALUES = [
  'policy-name',
  'policy-id',
  'group',
  'rule',
  'token-id',
  'hostname',
  'integration',
  'assertion-id',
] as const;
export type NodeValue = (typeof NODE_VALUES)[number];

/**
 * The maximum number of completions that the hidden command prints. The limit bounds the work of the shell.
 */
const MOST = 1_000;

const idSchema = z.object({ items: z.array(z.object({ id: z.string(), name: z.string().nullish() })) });
const namesSchema = z.object({ items: z.array(z.object({ hostname: z.string() })) });
const integrationsSchema = z.object({ items: z.array(z.object({ name: z.string() })) });
const ruleSchema = z.object({ id: z.string() });
const policySchema = z.object({
  source_groups: z.array(z.object({ id: z.string(), rules: z.array(ruleSchema).optional() })).optional(),
});

/**
 * Requests from the node the values of a kind that begin with `prefix`. For rules, `groups` limits the
 * result to rules of these source groups; an empty list sets no limit.
 */
export async function valuesOf(
  kind: NodeValue,
  client: Client,
  { prefix, groups }: { readonly prefix: string; readonly groups: readonly string[] },
): Promise<string[]> {
  const all = await everyValue(kind, client, groups);
  return [...new Set(all)].filter((value) => value.startsWith(prefix)).slice(0, MOST);
}

async function everyValue(kind: NodeValue, client: Client, groups: readonly string[]): Promise<string[]> {
  switch (kind) {
    case 'policy-name':
      return (await itemsAt('/api/v1/policies', client)).flatMap(({ name }) => name ?? []);
    case 'policy-id':
      return (await itemsAt('/api/v1/policies', client)).map(({ id }) => id);
    case 'assertion-id':
      return (await itemsAt('/api/v1/assertions', client)).map(({ id }) => id);
    case 'token-id':
      return (await itemsAt('/api/v1/tokens', client)).map(({ id }) => id);
    case 'hostname': {
      const { items } = parseReply(namesSchema, await client.request('/api/v1/dns-cache'));
      return items.map(({ hostname }) => hostname);
    }
    case 'integration': {
      const { items } = parseReply(integrationsSchema, await client.request('/api/v1/integrations'));
      return items.map(({ name }) => name);
    }
    case 'group':
    case 'rule': {
      const { source_groups: found = [] } = parseReply(policySchema, await client.request('/api/v1/policy'));
      if (kind === 'group') return found.map(({ id }) => id);
      const selected = groups.length === 0 ? found : found.filter(({ id }) => groups.includes(id));
      return selected.flatMap(({ rules = [] }) => rules.map(({ id }) => id));
    }
  }
}

async function itemsAt(path: string, client: Client): Promise<z.infer<typeof idSchema>['items']> {
  return parseReply(idSchema, await client.request(path)).items;
}

/**
 * The name of the hidden command that the completion scripts call. The command requests possible values from
 * the node.
 */
export const COMPLETE = 'complete';
