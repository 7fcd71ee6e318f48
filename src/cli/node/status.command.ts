import type { Command } from 'commander';
import { z } from 'zod';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import type { End } from '#cli/errors/exit-codes.js';
import { duration } from '#cli/number.js';
import { relativeTime } from '#cli/output/relative-time.js';
import { type Style, styleOf } from '#cli/output/style.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { listPolicies, type PolicyRecord } from '#cli/policy/policy-records.js';
import { type Readiness, readReadiness, waitUntilReady } from './node-readiness.js';

const byVerdict = z.object({ allow: z.number(), deny: z.number(), audit: z.number() });
const forwardingSchema = z.object({ way: z.string(), reason: z.string() }).nullable();
const statsSchema = z.looseObject({
  generation: z.number(),
  dataplane: z.looseObject({
    active_flows: z.number(),
    flows_opened: z.number(),
    flows_closed: z.number(),
    forwarding: forwardingSchema,
    /** A node of an earlier version has no such field. */
    ipv6_forwarding: forwardingSchema.optional(),
    packets: byVerdict,
    drops: z.record(z.string(), z.number()),
    non_ipv4_passed: z.looseObject({ packets: z.number() }),
    maps: z.record(z.string(), z.object({ entries: z.number(), capacity: z.number() })),
  }),
  dns: z.looseObject({
    queries_allow: z.number(),
    queries_deny: z.number(),
    servfail: z.number(),
    grants: z.number(),
  }),
  tls: z.looseObject({ ...byVerdict.shape, intercepted: z.number(), connections: z.number() }),
  http: z.looseObject({ ...byVerdict.shape, responses_deny: z.number() }),
});
type Stats = z.infer<typeof statsSchema>;
const reloadSchema = z.object({
  last_reload: z
    .object({
      at: z.string(),
      by: z.string(),
      result: z.string(),
      detail: z.string().nullable(),
      applied: z.array(z.string()),
      needs_restart: z.array(z.string()),
    })
    .nullable(),
});
type LastReload = z.infer<typeof reloadSchema>['last_reload'];
export type Status = {
  readonly readiness: Readiness;
  readonly policy: PolicyRecord | null;
  readonly stats: Stats;
  readonly last_reload: LastReload;
};

const NOT_READY = 3;
const DEFAULT_WAIT = '60s';

export function addStatusCommand(program: Command, terminal: Terminal, end: End): void {
  remote(program.command('status'))
    .description('show readiness, the active policy and statistics of a node; exits with 3 while the node is not ready')
    .option('--wait', 'until the node is ready')
    .option('--timeout <duration>', `how long to wait (default: ${DEFAULT_WAIT})`, duration)
    .option('--exclude <names>', 'readiness checks that do not count, separated by commas')
    .action(async (options: Output & { wait?: true; timeout?: number; exclude?: string }) => {
      const client = createClient(options, terminal);
      const readiness =
        options.wait === undefined
          ? await readReadiness(client, options.exclude)
          : await waitUntilReady(
              client,
              options.timeout ?? duration(DEFAULT_WAIT),
              terminal.interruption(),
              options.exclude,
            );
      const status = await readStatus(client, readiness);
      print(terminal, options.output, status, (shown) => statusText(shown, styleOf(terminal)));
      if (!readiness.ready) end(NOT_READY);
    });
}

/** Reads the state of a node that the readiness report does not contain. */
export async function readStatus(client: Client, readiness: Readiness): Promise<Status> {
  const stats = parseReply(statsSchema, await client.request('/api/v1/stats'));
  const policy = (await listPolicies(client)).find(({ active }) => active) ?? null;
  const { last_reload } = parseReply(reloadSchema, await client.request('/api/v1/config/reload'));
  return { readiness, policy, stats, last_reload };
}

export function statusText({ readiness, policy, stats, last_reload }: Status, style: Style): string {
  const { ready, checks } = readiness;
  const failing = checks.filter(({ ok, excluded }) => !ok && !excluded).length;
  const { dataplane, dns, tls, http } = stats;
  const dropped = Object.values(dataplane.drops).reduce((sum, count) => sum + count, 0);
  const others = notIpv4(stats);
  const facts = [
    ['node', ready ? style.good('ready') : style.bad(`not ready: ${failing} of ${checks.length} checks fail`)],
    [
      'policy',
      policy === null
        ? style.warn('no policy is active: policy.fallback decides')
        : policyLine(policy, stats, readiness),
    ],
    ['config', reloadLine(last_reload, style)],
    ['packets', `${verdicts(dataplane.packets)}  dropped ${dropped}`],
    ['not IPv4', `passed ${others.passed} without a policy  dropped ${others.dropped}`],
    ['flows', `${dataplane.active_flows} live  ${dataplane.flows_opened} opened  ${dataplane.flows_closed} closed`],
    ['forwarding', dataplane.forwarding === null ? '-' : `${dataplane.forwarding.way}: ${dataplane.forwarding.reason}`],
    ...(dataplane.ipv6_forwarding == null
      ? []
      : [['IPv6 forwarding', `${dataplane.ipv6_forwarding.way}: ${dataplane.ipv6_forwarding.reason}`] as const]),
    ['dns', `allow ${dns.queries_allow}  deny ${dns.queries_deny}  servfail ${dns.servfail}  granted ${dns.grants}`],
    ['tls', `${verdicts(tls)}  intercepted ${tls.intercepted}  live ${tls.connections}`],
    ['http', `${verdicts(http)}  responses denied ${http.responses_deny}`],
    ['fullest', fullest(dataplane.maps)],
  ];
  const rows = checks.map(({ name, ok, state, since, detail, excluded }) => [
    ok ? style.good('ok') : excluded ? style.warn('excluded') : style.bad('FAILS'),
    name,
    state,
    relativeTime(since),
    detail,
  ]);
  return `${table([], facts)}\n${table(['', 'CHECK', 'STATE', 'SINCE', 'DETAIL'], rows)}`;
}

/** Returns how many packets other than IPv4 and ARP passed without a policy, and how many were dropped. */
export const notIpv4 = ({ dataplane: { non_ipv4_passed, drops } }: Stats): { passed: number; dropped: number } => ({
  passed: non_ipv4_passed.packets,
  dropped: (drops.ipv6 ?? 0) + (drops.non_ipv4 ?? 0),
});

const verdicts = ({ allow, deny, audit }: z.infer<typeof byVerdict>): string =>
  `allow ${allow}  deny ${deny}  audit ${audit}`;

function policyLine({ id, name, mode, revision }: PolicyRecord, { generation }: Stats, readiness: Readiness): string {
  const since = readiness.in_force_since == null ? '' : `, came in force ${relativeTime(readiness.in_force_since)}`;
  return `${name ?? id} (${mode}), revision ${revision}, generation ${generation}${since}`;
}

function reloadLine(last: LastReload, style: Style): string {
  if (last === null) return 'as read at the start of the node';
  const { at, by, result, detail, applied, needs_restart } = last;
  const when = `${relativeTime(at)} by ${by}`;
  const waiting = needs_restart.length === 0 ? '' : `  needs a restart: ${needs_restart.join(', ')}`;
  if (result === 'applied') return `reloaded ${when}: ${applied.length} changed${waiting}`;
  return style.bad(`not reloaded ${when} (${result}): ${detail ?? ''}`);
}

const NAMED = 3;

/** Returns the three fullest BPF maps with their number of entries and fill level. */
function fullest(maps: Stats['dataplane']['maps']): string {
  const shares = Object.entries(maps)
    .map(([name, { entries, capacity }]) => ({
      name,
      entries,
      capacity,
      share: capacity === 0 ? 0 : entries / capacity,
    }))
    .sort((a, b) => b.share - a.share)
    .slice(0, NAMED);
  if (shares.length === 0) return '-';
  return shares
    .map(({ name, entries, capacity, share }) => `${name} ${entries}/${capacity} (${Math.round(share * 100)} %)`)
    .join('  ');
}
