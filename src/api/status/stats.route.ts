import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { noQuery } from '#api/requests/query-parameters.js';
import type { NodeStats } from '#observe/metrics/stats.js';

const count = z.int().min(0);
const packetsAndBytes = z.object({ packets: count, bytes: count });
const forwarding = z.object({ way: z.enum(['stack', 'direct']), reason: z.string() }).nullable();
const byVerdict = z.object({ allow: count, deny: count, audit: count });

const StatsSchema = z
  .object({
    generation: count.describe('The generation of the active policy; 0 before the first activation.'),
    dataplane: z.object({
      active_flows: count,
      forwarding: forwarding.describe(
        'How the node forwards passed packets at this time, and the reason. Null without a dataplane.',
      ),
      ipv6_forwarding: forwarding.describe(
        'How the node forwards passed IPv6 packets at this time. Null unless `dataplane.ipv6` is `enforce`.',
      ),
      routes_copied: z
        .boolean()
        .describe(
          'Whether the datapath reads the route of a new flow from its copy of the routes instead of asking the kernel.',
        ),
      packets: byVerdict,
      bytes: byVerdict,
      inspected: z
        .object({ handed: packetsAndBytes, joined: packetsAndBytes })
        .describe(
          'Packets of inspected connections. `handed`: redirected to the service plane. `joined`: forwarded in the kernel after splicing.',
        ),
      non_ipv4_passed: packetsAndBytes.describe(
        'Packets that passed without a verdict: forwarded IPv6 because of `dataplane.ipv6`, and protocols other than IP and ARP because of `dataplane.non_ipv4`.',
      ),
      dns_unroutable: packetsAndBytes.describe(
        'DNS queries that `dns.transparent` did not divert, because their destination has neither a route nor a socket of the node. The kernel dropped them.',
      ),
      drops: z.record(z.string(), count).describe('Packets by drop reason.'),
      flows_opened: count,
      flows_closed: count.describe('Established flows that ended or were suspended.'),
      flows_suspended: count.describe(
        'Flows that a later policy denied. They pass nothing until a policy allows them.',
      ),
      flows_resumed: count.describe('Suspended flows that a later policy let go on.'),
      half_open_flows: count.describe('Flows that no reply has confirmed, and suspended flows.'),
      refusing: z
        .array(z.enum(['flow_table_full', 'flow_share']))
        .describe(
          'Why the flow table refused new flows in the last seconds: the table was full, or a source had used its share. Empty if no flow was refused.',
        ),
      grants_refused: count.describe(
        'Addresses that were not learned because the grant table was full. They stay denied.',
      ),
      events_lost: z
        .object({ ring: count, source_share: count })
        .describe('Lost events: the ring buffer was full, or the source exceeded its share.'),
      maps: z.record(z.string(), z.object({ entries: count, capacity: count })),
    }),
    dns: z.object({
      queries_allow: count,
      queries_deny: count,
      nxdomain_policy: count,
      nxdomain_upstream: count,
      servfail: count,
      grants: count,
    }),
    observer: z
      .object({
        readers: count.describe('Current wiretap clients.'),
        messages: count,
        lost: z.object({ reader: count, kernel: count, source_share: count, service_plane: count }),
        findings: z.object({ merged: count, entries: count, gaps: count, overflowed: count }),
        flow_history: z
          .object({ flows: count, folded: count, not_recorded: count })
          .describe('The record of seen flows (`flow_history` in the configuration).'),
        sinks: z.array(z.object({ name: z.string(), delivered: count, failed: count, dropped: count, waiting: count })),
      })
      .nullable()
      .describe('Wiretap, findings and seen flows; null while no observer runs.'),
    tls: z
      .object({
        ...byVerdict.shape,
        intercepted: count,
        connections: count.describe('Current connections of the service plane.'),
        suspended: count.describe('Those of them that a later policy denies. They pass nothing.'),
        intercept_ca: z.boolean().describe('Whether an intercept CA is stored, also if it is not readable.'),
        refused: z
          .record(z.string(), count)
          .describe(
            'Connections and requests that were refused or closed for a reason other than the verdict of a rule, by reason.',
          ),
        upstream_ca_fault: z
          .string()
          .nullable()
          .describe(
            'Why `upstream_ca` cannot be read; the certificates that were read before stay in use. Null if there is no fault.',
          ),
        join_fault: z
          .string()
          .nullable()
          .describe(
            'Why the datapath cannot forward spliced connections itself (splicing offload), usually a missing capability. The node then forwards them through its sockets. Null if there is no fault.',
          ),
      })
      .describe('Redirected connections. Those counted by verdict were decided without reading their requests.'),
    http: z
      .object({
        ...byVerdict.shape,
        responses_deny: count.describe('Responses that violated the rule that had allowed their request.'),
        responses_audit: count,
      })
      .describe('Requests of intercepted connections.'),
    cluster: z.object({
      enabled: z.boolean(),
      is_leader: z.boolean(),
      leader: z.string().nullable(),
      members: z.array(z.string()),
      revision: count.nullable(),
      applied_revision: count.nullable(),
      lag: count.nullable(),
    }),
  })
  .meta({
    id: 'Stats',
    description: 'Counters of this node since its start. A part that does not run is null.',
  });

export const statsResource: Resource = (api, management) => {
  api.get(
    '/api/v1/stats',
    {
      schema: {
        operationId: 'getStats',
        tags: ['observation'],
        summary: 'Get the counters of the node',
        querystring: noQuery,
        response: { 200: StatsSchema, ...errorAnswers(...errorsOf.read) },
      },
    },
    async () => statsAnswer(await management.stats(), management.interceptCa.isStored()),
  );
};

function counted(counter: { readonly packets: bigint; readonly bytes: bigint } | undefined): {
  readonly packets: number;
  readonly bytes: number;
} {
  return { packets: Number(counter?.packets ?? 0), bytes: Number(counter?.bytes ?? 0) };
}

function statsAnswer(
  { generation, dataplane, dns, servicePlane, cluster, observer }: NodeStats,
  hasInterceptCa: boolean,
): z.infer<typeof StatsSchema> {
  const [allow, deny, audit] = [
    counted(dataplane?.verdicts.allow),
    counted(dataplane?.verdicts.deny),
    counted(dataplane?.verdicts.audit),
  ];
  return {
    generation,
    dataplane: {
      active_flows: dataplane?.activeFlows ?? 0,
      forwarding: dataplane?.forwarding ?? null,
      ipv6_forwarding: dataplane?.ipv6Forwarding ?? null,
      routes_copied: dataplane?.routesCopied ?? false,
      packets: { allow: allow.packets, deny: deny.packets, audit: audit.packets },
      bytes: { allow: allow.bytes, deny: deny.bytes, audit: audit.bytes },
      inspected: { handed: counted(dataplane?.inspected.handed), joined: counted(dataplane?.inspected.joined) },
      non_ipv4_passed: counted(dataplane?.nonIpv4Passed),
      dns_unroutable: counted(dataplane?.dnsUnroutable),
      drops: Object.fromEntries(
        Object.entries(dataplane?.drops ?? {}).map(([reason, { packets }]) => [reason, Number(packets)]),
      ),
      flows_opened: Number(dataplane?.flowsOpened ?? 0),
      flows_closed: Number(dataplane?.flowsClosed ?? 0),
      flows_suspended: Number(dataplane?.flowsSuspended ?? 0),
      flows_resumed: Number(dataplane?.flowsResumed ?? 0),
      half_open_flows: dataplane?.halfOpenFlows ?? 0,
      refusing: [...(dataplane?.refusing ?? [])],
      grants_refused: dataplane?.grantsRefused ?? 0,
      events_lost: {
        ring: Number(dataplane?.events.lost ?? 0),
        source_share: Number(dataplane?.events.suppressed ?? 0),
      },
      maps: { ...dataplane?.maps },
    },
    dns: {
      queries_allow: dns?.queriesAllow ?? 0,
      queries_deny: dns?.queriesDeny ?? 0,
      nxdomain_policy: dns?.nxdomainPolicy ?? 0,
      nxdomain_upstream: dns?.nxdomainUpstream ?? 0,
      servfail: dns?.servfail ?? 0,
      grants: dns?.grants ?? 0,
    },
    observer:
      observer === null
        ? null
        : {
            readers: observer.readers,
            messages: observer.messages,
            lost: {
              reader: observer.lostReader,
              kernel: observer.lostKernel,
              source_share: observer.lostSourceShare,
              service_plane: observer.lostServicePlane,
            },
            findings: { ...observer.findings },
            flow_history: {
              flows: observer.flowHistory.flows,
              folded: observer.flowHistory.folded,
              not_recorded: observer.flowHistory.notRecorded,
            },
            sinks: observer.sinks.map((sink) => ({ ...sink })),
          },
    tls: {
      allow: servicePlane?.allow ?? 0,
      deny: servicePlane?.deny ?? 0,
      audit: servicePlane?.audit ?? 0,
      intercepted: servicePlane?.intercepted ?? 0,
      connections: servicePlane?.connections ?? 0,
      suspended: servicePlane?.suspended ?? 0,
      intercept_ca: hasInterceptCa,
      refused: { ...servicePlane?.refused },
      upstream_ca_fault: servicePlane?.upstreamCaFault ?? null,
      join_fault: servicePlane?.spliceFault ?? null,
    },
    http: {
      allow: servicePlane?.requestsAllow ?? 0,
      deny: servicePlane?.requestsDeny ?? 0,
      audit: servicePlane?.requestsAudit ?? 0,
      responses_deny: servicePlane?.responsesDeny ?? 0,
      responses_audit: servicePlane?.responsesAudit ?? 0,
    },
    cluster: {
      enabled: cluster !== null,
      is_leader: cluster?.isLeader ?? false,
      leader: cluster?.leader ?? null,
      members: [...(cluster?.members ?? [])],
      revision: cluster?.revision ?? null,
      applied_revision: cluster?.appliedRevision ?? null,
      lag: cluster?.lag ?? null,
    },
  };
}

export const metricsResource: Resource = (api, { metrics }) => {
  api.get(
    '/metrics',
    {
      config: { access: { management: 'public', metrics: 'public' } },
      schema: {
        operationId: 'getMetrics',
        tags: ['observation'],
        summary: 'Prometheus metrics',
        response: {
          200: { description: 'Prometheus text format.', content: { 'text/plain': { schema: z.string() } } },
          ...errorAnswers(...errorsOf.public),
        },
      },
    },
    async (_request, reply) => reply.type(metrics.contentType).send(await metrics.scrape()),
  );
};
