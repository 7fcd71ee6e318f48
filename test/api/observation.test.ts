import { describe, expect, test } from 'vitest';
import { createMetrics } from '#observe/metrics/metrics.js';
import { EVERY_PART } from '#test/observe/every-part.js';
import { EXPLANATION, fakeManagement, READY, SINCE, STATS } from './fake-management.js';
import { rig } from './rig.js';

const FAILING = {
  ready: false,
  checks: [
    READY.checks[0] as (typeof READY.checks)[number],
    { name: 'dns_allowlist', ok: false, state: 'needed_but_absent', detail: 'a rule names a host', since: SINCE },
  ],
};
const failing = () => {
  const node = fakeManagement();
  node.reads.readiness = FAILING;
  return rig({}, node);
};

/** Matches the time in a response, which differs in each test run. */
/** Scrapes the metrics, and returns the lines that begin with `prefix`. */
const linesOf = async (metrics: ReturnType<typeof createMetrics>, prefix: string) =>
  (await metrics.scrape()).split('\n').filter((line) => line.startsWith(prefix));
const NOW: unknown = expect.stringMatching(/^20\d\d-.*Z$/);

describe('readiness route', () => {
  test('the readiness route returns every readiness check, with status 200 if all checks pass and status 503 if a check fails', async () => {
    const { ask } = await rig();
    const good = await ask('GET', '/ready', { token: null });
    expect([good.statusCode, good.json(), good.headers['cache-control']]).toEqual([
      200,
      { ...READY, generation: 7, in_force_since: SINCE, time: NOW },
      'no-store',
    ]);
    const bad = await (await failing()).ask('GET', '/ready', { token: null });
    expect([bad.statusCode, bad.json(), bad.headers['content-type']]).toEqual([
      503,
      { ...FAILING, generation: 7, in_force_since: SINCE, time: NOW },
      'application/json; charset=utf-8',
    ]);
  });

  test.each([
    ['/ready?verbose', {}],
    ['/ready?verbose=true', {}],
    ['/ready', { accept: 'text/plain' }],
  ])(
    'the readiness route for the URL path %s with the request headers %j returns plain text with one line for each readiness check',
    async (url, headers) => {
      const answer = await (await failing()).ask('GET', url, { headers });
      expect([answer.statusCode, answer.body, answer.headers['content-type']]).toEqual([
        503,
        '[+]dataplane_running ok\n[-]dns_allowlist failed: needed_but_absent: a rule names a host\nnot ready\n',
        'text/plain; charset=utf-8',
      ]);
    },
  );

  test.each([
    'exclude=dns_allowlist,cluster',
    'exclude=cluster&exclude=dns_allowlist',
    'exclude=dns_allowlist&exclude=cluster,cluster',
  ])(
    'the readiness route with the query ?%s computes `ready` and the status without the excluded checks, and marks them in the response',
    async (query) => {
      const node = fakeManagement();
      const cluster = { name: 'cluster', ok: false, state: 'lost', detail: '', since: SINCE };
      node.reads.readiness = { ready: false, checks: [...FAILING.checks, cluster] };
      const { ask } = await rig({}, node);
      const answer = await ask('GET', `/ready?${query}`, { token: null });
      expect([answer.statusCode, answer.json()]).toEqual([
        200,
        {
          ready: true,
          generation: 7,
          in_force_since: SINCE,
          time: NOW,
          checks: [FAILING.checks[0], { ...FAILING.checks[1], excluded: true }, { ...cluster, excluded: true }],
        },
      ]);
    },
  );

  test('the readiness route returns null for the time of the policy in force if no policy is in force', async () => {
    const node = fakeManagement();
    node.reads.enforcement = { enforcing: false, generation: null, since: null };
    const { ask } = await rig({}, node);
    expect((await ask('GET', '/ready')).json()).toEqual({
      ...READY,
      generation: null,
      in_force_since: null,
      time: NOW,
    });
  });

  test('the readiness route reports not ready while a check fails that the query does not exclude', async () => {
    const { ask } = await failing();
    const answer = await ask('GET', '/ready?exclude=dataplane_running');
    expect([answer.statusCode, answer.json()]).toEqual([
      503,
      {
        ready: false,
        generation: 7,
        in_force_since: SINCE,
        time: NOW,
        checks: [{ ...FAILING.checks[0], excluded: true }, FAILING.checks[1]],
      },
    ]);
  });

  test('the readiness route marks the excluded checks in plain text', async () => {
    const { ask } = await failing();
    const answer = await ask('GET', '/ready?verbose&exclude=dns_allowlist,dataplane_running');
    expect([answer.statusCode, answer.body]).toEqual([
      200,
      '[+]dataplane_running excluded: ok\n[-]dns_allowlist excluded: failed: needed_but_absent: a rule names a host\nready\n',
    ]);
  });

  test('the readiness route refuses a query that excludes an unknown check, and lists the names of the checks', async () => {
    const { ask } = await failing();
    const answer = await ask('GET', '/ready?exclude=dns,dns_allowlist,');
    expect([answer.statusCode, answer.json()]).toEqual([
      400,
      expect.objectContaining({
        type: expect.stringMatching(/invalid_query$/) as string,
        problems: [
          {
            pointer: '?exclude',
            code: 'invalid_parameter',
            message: 'No readiness check is named "dns", "". The checks are dataplane_running, dns_allowlist.',
          },
        ],
      }),
    ]);
  });
});

test('GET /api/v1/node returns what the node is, and what the kernel enforces since when', async () => {
  const { ask, node } = await rig();
  const self = { id: 'node-a', version: '0.1.0', kernel: '6.12.0', started_at: SINCE, cluster_enabled: true };
  expect((await ask('GET', '/api/v1/node')).json()).toEqual({
    ...self,
    enforcing: true,
    generation: 7,
    in_force_since: SINCE,
  });
  node.reads.enforcement = { enforcing: null, generation: null, since: null };
  expect((await ask('GET', '/api/v1/node')).json()).toEqual({
    ...self,
    enforcing: null,
    generation: null,
    in_force_since: null,
  });
  expect((await ask('GET', '/api/v1/node', { token: null })).statusCode).toBe(401);
});

test('GET /health returns the status ok', async () => {
  const { ask } = await rig();
  expect((await ask('GET', '/health', { token: null })).json()).toEqual({ status: 'ok' });
});

describe('stats route', () => {
  test('the stats route returns all fields of the statistics, with 0 or null for the counters of a part that does not run', async () => {
    const { ask } = await rig();
    expect((await ask('GET', '/api/v1/stats')).json()).toEqual({
      generation: 7,
      dataplane: {
        active_flows: 2,
        forwarding: { way: 'stack', reason: 'nftables chain inet filter forward' },
        ipv6_forwarding: null,
        routes_copied: true,
        packets: { allow: 10, deny: 3, audit: 1 },
        bytes: { allow: 1_000, deny: 180, audit: 60 },
        inspected: { handed: { packets: 20, bytes: 2_000 }, joined: { packets: 30, bytes: 30_000 } },
        non_ipv4_passed: { packets: 6, bytes: 600 },
        dns_unroutable: { packets: 7, bytes: 700 },
        drops: { policy: 3 },
        flows_opened: 5,
        flows_closed: 3,
        flows_suspended: 2,
        flows_resumed: 1,
        half_open_flows: 1,
        refusing: ['flow_share'],
        grants_refused: 2,
        events_lost: { ring: 5, source_share: 4 },
        maps: { flows: { entries: 2, capacity: 131_072 } },
      },
      dns: {
        queries_allow: 0,
        queries_deny: 0,
        nxdomain_policy: 0,
        nxdomain_upstream: 0,
        servfail: 0,
        grants: 0,
      },
      observer: null,
      tls: {
        allow: 0,
        deny: 0,
        audit: 0,
        intercepted: 0,
        connections: 0,
        suspended: 0,
        intercept_ca: false,
        refused: {},
        upstream_ca_fault: null,
        join_fault: null,
      },
      http: { allow: 0, deny: 0, audit: 0, responses_deny: 0, responses_audit: 0 },
      cluster: {
        enabled: false,
        is_leader: false,
        leader: null,
        members: [],
        revision: null,
        applied_revision: null,
        lag: null,
      },
    });
  });

  test('the stats route returns the counters of each part that runs', async () => {
    const stats = {
      ...STATS,
      dataplane: null,
      dns: EVERY_PART.dns,
      servicePlane: EVERY_PART.servicePlane,
      cluster: {
        ...{ isLeader: true, leader: 'a', members: ['a', 'b'], revision: 12, appliedRevision: 11, lag: 1 },
        ...{ connected: true, isContradicted: false, isFull: false, unreadable: 0 },
      },
    };
    const { ask } = await rig({}, { ...fakeManagement(), stats: async () => stats });
    expect((await ask('GET', '/api/v1/stats')).json()).toMatchObject({
      dataplane: {
        active_flows: 0,
        forwarding: null,
        ipv6_forwarding: null,
        packets: { allow: 0, deny: 0, audit: 0 },
        drops: {},
        maps: {},
      },
      dns: { queries_allow: 1, queries_deny: 2, nxdomain_policy: 3, nxdomain_upstream: 4, servfail: 5, grants: 6 },
      tls: {
        allow: 20,
        deny: 21,
        audit: 22,
        intercepted: 23,
        connections: 29,
        refused: { 'upstream_untrusted:expired': 30, no_ca: 31, server_unreachable: 32, too_many_connections: 33 },
        upstream_ca_fault: 'the file contains no readable PEM certificate',
        join_fault: 'CAP_NET_RAW missing',
      },
      http: { allow: 24, deny: 25, audit: 26, responses_deny: 27, responses_audit: 28 },
      cluster: {
        enabled: true,
        is_leader: true,
        leader: 'a',
        members: ['a', 'b'],
        revision: 12,
        applied_revision: 11,
        lag: 1,
      },
    });
  });
});

describe('explain route', () => {
  const explained = { ...EXPLANATION, enforced_instead: null, reply_to: null };
  const asking = async (body: object) => {
    const questions: unknown[] = [];
    const node = fakeManagement();
    const { ask } = await rig(
      {},
      {
        ...node,
        policies: {
          ...node.policies,
          explain: async (question, subject) => {
            questions.push(question);
            return node.policies.explain(question, subject);
          },
        },
      },
    );
    const answer = await ask('POST', '/api/v1/policy/explain', { body });
    return { status: answer.statusCode, body: answer.json(), questions };
  };

  test('the explain route and policy reads return the generation number of the policy in the kernel if the kernel does not enforce the active policy', async () => {
    const { ask, node } = await rig();
    const body = { src: '10.0.0.7', query: 'a.example' };
    const told = async () => {
      const reads = await Promise.all(['/api/v1/policy', '/api/v1/policies'].map((path) => ask('GET', path)));
      const explained = await ask('POST', '/api/v1/policy/explain', { body });
      return [...reads.map(({ headers }) => headers['weir-enforced-instead']), explained.json().enforced_instead];
    };
    expect(await told()).toEqual([undefined, undefined, null]);
    node.reads.enforcedInstead = 17;
    expect(await told()).toEqual(['17', '17', 17]);
  });

  test('if a denied packet is a reply to a flow, the explain route returns the first packet of that flow as a request that can be explained', async () => {
    const { node, ask } = await rig();
    const flow = { source: 0x0a000007, destination: 0xc000020a, sourcePort: 40_000, destinationPort: 443 };
    const body = { src: '192.0.2.10', dst: '10.0.0.7', proto: 'udp', src_port: 443, dst_port: 40_000 };
    const replyTo = async (protocol: number) => {
      node.reads.replyTo = { ...flow, protocol, icmpType: 8, icmpCode: 0 };
      return (await ask('POST', '/api/v1/policy/explain', { body })).json().reply_to;
    };
    const ends = { src: '10.0.0.7', dst: '192.0.2.10' };
    expect(await replyTo(17)).toEqual({ ...ends, proto: 17, src_port: 40_000, dst_port: 443 });
    expect(await replyTo(1)).toEqual({ ...ends, proto: 1, icmp_type: 8, icmp_code: 0 });
    expect(await replyTo(47)).toEqual({ ...ends, proto: 47 });
  });

  test('the explain route passes a question about a packet to the node with numeric addresses, and returns the explanation', async () => {
    const packet = {
      src: '10.0.0.7',
      dst: '192.0.2.10',
      proto: 'TCP',
      src_port: 40_000,
      dst_port: 443,
      hostname: 'API.test.',
    };
    expect(await asking(packet)).toEqual({
      status: 200,
      body: explained,
      questions: [
        {
          query: {
            packet: {
              source: 0x0a000007,
              destination: 0xc000020a,
              protocol: 6,
              sourcePort: 40_000,
              destinationPort: 443,
              icmpType: 0,
              icmpCode: 0,
            },
            hostname: 'api.test',
          },
        },
      ],
    });
  });

  test.each([
    ['tcp', '/dst_port'],
    ['udp', '/dst_port'],
    [132, '/dst_port'],
    ['icmp', '/icmp_type'],
  ])(
    'the explain route refuses a question about the protocol %s without a destination port or ICMP type instead of assuming a value',
    async (proto, pointer) => {
      const { status, body, questions } = await asking({ src: '10.0.0.7', dst: '192.0.2.10', proto });
      const problems = (body as { problems: { pointer: string; code: string }[] }).problems;
      expect({ status, questions, problems: problems.map(({ pointer, code }) => ({ pointer, code })) }).toEqual({
        status: 400,
        questions: [],
        problems: [{ pointer, code: 'required' }],
      });
    },
  );

  test('the explain route passes a question about a DNS query, with a draft policy, to the node', async () => {
    const policy = { default_policy: 'allow' };
    expect(await asking({ policy, src: '10.0.0.7', query: 'API.test.' })).toEqual({
      status: 200,
      body: explained,
      questions: [{ policy, query: { source: 0x0a000007, query: 'api.test' } }],
    });
  });

  test('the explain route returns 400 with the problems of an invalid draft policy', async () => {
    const problems = [
      { pointer: '/policy/default_policy', code: 'invalid_action' as const, message: 'Must be allow or deny.' },
    ];
    const { policies } = fakeManagement();
    const explain = async () =>
      ({ kind: 'refused', code: 'invalid_policy', detail: 'the draft is not valid', problems }) as const;
    const { ask } = await rig({}, fakeManagement({ policies: { ...policies, explain } }));
    const body = { policy: { default_policy: 'x' }, src: '10.0.0.7', query: 'a.test' };
    const answer = await ask('POST', '/api/v1/policy/explain', { body });
    expect([answer.statusCode, answer.json().problems]).toEqual([400, problems]);
  });
});

describe('metrics route', () => {
  const scraped = async () => {
    const { ask } = await rig();
    await ask('GET', '/api/v1/policies/x1');
    await ask('GET', '/api/v1/policies/x2');
    await ask('GET', '/nowhere');
    const answer = await ask('GET', '/metrics', { token: null });
    expect(answer.headers['content-type']).toMatch(/^text\/plain; version=0\.0\.4/);
    return answer.body.split('\n');
  };

  test('the metrics route returns kernel counters, readiness checks, and the number of requests to each route', async () => {
    const lines = await scraped();
    expect(lines).toEqual(
      expect.arrayContaining([
        'weir_build_info{version="0.1.0"} 1',
        'weir_ready 1',
        'weir_readiness_check{check="policy_ready"} 1',
        'weir_stats_up 1',
        'weir_policy_generation 7',
        'weir_dataplane_flows 2',
        'weir_dataplane_flows_opened_total 5',
        'weir_dataplane_flows_closed_total 3',
        'weir_dataplane_flows_suspended_total 2',
        'weir_dataplane_flows_resumed_total 1',
        'weir_dataplane_grants_refused_total 2',
        'weir_dataplane_packets_total{verdict="allow"} 10',
        'weir_dataplane_packets_total{verdict="deny"} 3',
        'weir_dataplane_packets_total{verdict="audit"} 1',
        'weir_dataplane_bytes_total{verdict="allow"} 1000',
        'weir_dataplane_drops_total{reason="policy"} 3',
        'weir_dataplane_drop_bytes_total{reason="policy"} 180',
        'weir_events_lost_total{where="ring"} 5',
        'weir_events_lost_total{where="source_share"} 4',
        'weir_dataplane_map_entries{map="flows"} 2',
        'weir_dataplane_map_capacity{map="flows"} 131072',
        'weir_api_requests_total{route="/api/v1/policies/:id",method="GET",status="2xx"} 2',
        'weir_api_requests_total{route="none",method="GET",status="4xx"} 1',
        'weir_api_request_duration_seconds_count{route="/api/v1/policies/:id",method="GET"} 2',
      ]),
    );
    expect(lines.some((line) => line.startsWith('weir_nodejs_eventloop_lag_seconds '))).toBe(true);
  });

  test('the metrics route omits the kernel counters while the node cannot read them', async () => {
    const metrics = createMetrics({
      version: '0.1.0',
      stats: () => Promise.reject(new Error('no kernel')),
      readiness: () => READY,
    });
    const lines = (await metrics.scrape()).split('\n');
    expect(lines).toEqual(expect.arrayContaining(['weir_stats_up 0', 'weir_ready 1']));
    expect(lines.filter((line) => /^weir_dataplane_packets_total\{/.test(line))).toEqual([]);
  });

  test('the metrics route returns the metrics of the DNS proxy while the proxy runs', async () => {
    const stats = { ...STATS, dns: EVERY_PART.dns };
    const metrics = createMetrics({ version: '0.1.0', stats: async () => stats, readiness: () => READY });
    await metrics.scrape();
    const lines = await linesOf(metrics, 'weir_dns_');
    expect(lines).toEqual([
      'weir_dns_queries_total{verdict="allow"} 1',
      'weir_dns_queries_total{verdict="deny"} 2',
      'weir_dns_failures_total{kind="nxdomain_policy"} 3',
      'weir_dns_failures_total{kind="nxdomain_upstream"} 4',
      'weir_dns_failures_total{kind="servfail"} 5',
      'weir_dns_refused_total{reason="answer_unasked"} 11',
      'weir_dns_grants_total 6',
      'weir_dns_learning_wait_seconds{quantile="0.5"} 0.00025',
      'weir_dns_learning_wait_seconds{quantile="0.99"} 0.002',
      'weir_dns_cache_lookups_total{outcome="hit"} 7',
      'weir_dns_cache_lookups_total{outcome="miss"} 8',
      'weir_dns_cache_entries 9',
      'weir_dns_cache_bytes 10',
      'weir_dns_upstreams{state="alive"} 2',
      'weir_dns_upstreams{state="dead"} 1',
      'weir_dns_upstream_queries_total 42',
      'weir_dns_upstream_timeouts_total 45',
      'weir_dns_upstream_latency_seconds{which="fastest"} 0.0005',
      'weir_dns_upstream_latency_seconds{which="slowest"} 0.002',
    ]);
  });

  test('the metrics route returns how many proofs (kernel test runs of new policies) passed and failed, and how many test packets the passed proofs had', async () => {
    const metrics = createMetrics({ version: '0.1.0', stats: async () => STATS, readiness: () => READY });
    metrics.proved({ checked: 24, complete: true });
    metrics.proved({ checked: 100, complete: false });
    metrics.disproved();
    const lines = await linesOf(metrics, 'weir_policy_proof');
    expect(lines).toEqual([
      'weir_policy_proofs_total{outcome="passed"} 2',
      'weir_policy_proofs_total{outcome="failed"} 1',
      'weir_policy_proof_packets_total 124',
      'weir_policy_proof_complete 0',
    ]);
  });

  test('the metrics route returns the same kernel counters in two scrapes if the kernel counted nothing in between', async () => {
    const { ask } = await rig();
    await ask('GET', '/metrics');
    const second = await ask('GET', '/metrics');
    expect(second.body).toContain('\nweir_dataplane_packets_total{verdict="allow"} 10\n');
  });
});
