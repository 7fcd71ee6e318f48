import { beforeEach, describe, expect, it } from 'vitest';
import { clockAt, ok, run, serverThatAnswers, TOKEN } from './cli-run.js';

const SINCE = '2026-01-31T12:00:00.000Z';

const finding = {
  finding_type: 'l4_deny',
  policy_id: 'p-1',
  generation: 7,
  source_group: 'lan',
  rule: 'no-web',
  src_ip: '10.0.0.7',
  dst_ip: '192.0.2.1',
  dst_port: 443,
  proto: 6,
  hostname: 'api.example.com',
  sni: null,
  http: null,
  icmp_type: null,
  icmp_code: null,
  drop_reason: 'policy_deny',
  effective_action: 'deny',
  first_seen: SINCE,
  last_seen: '2026-01-31T12:00:05.000Z',
  count: 3,
  node_ids: ['node-a'],
};
const nowhere = {
  src_ip: null,
  dst_ip: null,
  dst_port: null,
  proto: null,
  hostname: null,
  source_group: null,
  rule: null,
};
const write = {
  ...finding,
  ...nowhere,
  finding_type: 'config_change',
  drop_reason: null,
  effective_action: 'allow',
  actor: 'alice',
  operation: 'putActivePolicy',
  target: '/api/v1/policy',
};
const request = {
  ...finding,
  finding_type: 'http_deny',
  sni: 'api.example.com',
  hostname: null,
  http: { method: 'GET', host: 'api.example.com', path: '/v1/things' },
  drop_reason: null,
  reason: 'response/headers/deny_present/x',
};
const page = (items: unknown[], next: string | null = null, errors: unknown[] = []) =>
  ok({
    items,
    next_cursor: next,
    partial: errors.length > 0,
    node_errors: errors,
    nodes_queried: 1,
    nodes_responded: 1,
  });

describe('weir findings', () => {
  it('`weir findings` prints the pods that owned the addresses', async () => {
    const owner = (name: string) => ({ integration: 'prod', kind: 'pod', namespace: 'shop', name });
    const owned = { ...finding, hostname: null, src_owner: owner('web'), dst_owner: owner('api') };
    const { url } = await serverThatAnswers(page([owned]));
    const { out } = await run(['findings', '--server', url], TOKEN);
    expect(out).toContain('  shop/web (10.0.0.7)  shop/api (192.0.2.1:443)  ');
  });

  it('`weir findings` prints the findings of all pages up to the limit as one table, and names nodes that did not respond', async () => {
    clockAt('2026-01-31T12:03:05Z');
    const { url, asked } = await serverThatAnswers(
      page([finding], 'c1', [{ node_id: 'node-b', error: 'no answer within 2 s' }]),
      page([write, { ...finding, dst_port: null, icmp_type: 8, icmp_code: 0, hostname: null, proto: 1, rule: null }]),
    );
    const flags = [
      '--type',
      'l4_deny',
      'config_change',
      '--group',
      'lan',
      '--since',
      '2026-01-31T00:00:00Z',
      '--limit',
      '3',
    ];
    expect(await run(['findings', ...flags, '--server', url], TOKEN)).toEqual({
      code: 0,
      out: `LAST SEEN  TYPE           PASSED  PROTO  SOURCE    DESTINATION                      BY             REASON           COUNT
3 min ago  l4_deny        no      tcp    10.0.0.7  api.example.com (192.0.2.1:443)  lan/no-web     policy_deny      3
3 min ago  config_change  yes     -      alice     /api/v1/policy                   -              putActivePolicy  3
3 min ago  l4_deny        no      icmp   10.0.0.7  192.0.2.1 type 8 code 0          lan (default)  policy_deny      3
`,
      err: 'node-b did not respond: no answer within 2 s\n',
    });
    expect(asked.map(({ path }) => decodeURIComponent(path))).toEqual([
      '/api/v1/audit/findings?finding_type=l4_deny&finding_type=config_change&source_group=lan&since=2026-01-31T00:00:00.000Z&limit=3',
      '/api/v1/audit/findings?finding_type=l4_deny&finding_type=config_change&source_group=lan&since=2026-01-31T00:00:00.000Z&limit=2&cursor=c1',
    ]);
  });

  it('`weir findings` prints the URL or server name of the request, and prints the reason of a deny next to the rule', async () => {
    clockAt('2026-01-31T12:03:05Z');
    const expired = { ...request, finding_type: 'tls_deny', http: null, reason: 'upstream_untrusted:expired' };
    const translated = { ...finding, translation: { dst_ip: '198.51.100.1', dst_port: 80 } };
    const { url } = await serverThatAnswers(page([request, expired, translated]));
    const { out } = await run(['findings', '--server', url], TOKEN);
    expect(out.split('\n').slice(1, -1)).toEqual([
      '3 min ago  http_deny  no      tcp    10.0.0.7  GET api.example.com/v1/things (192.0.2.1:443)             lan/no-web  response/headers/deny_present/x  3',
      '3 min ago  tls_deny   no      tcp    10.0.0.7  api.example.com (192.0.2.1:443)                           lan/no-web  upstream_untrusted:expired       3',
      '3 min ago  l4_deny    no      tcp    10.0.0.7  api.example.com (192.0.2.1:443, sent to 198.51.100.1:80)  lan/no-web  policy_deny                      3',
    ]);
  });

  it('`weir findings` with --local requests the findings of one node, and with --output json prints a JSON object with the findings', async () => {
    const { url, asked } = await serverThatAnswers(page([finding]));
    const { out } = await run(['findings', '--local', '--server', url, '--output', 'json'], TOKEN);
    expect(JSON.parse(out)).toEqual({ items: [finding], partial: false, node_errors: [] });
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/audit/findings/local?limit=100']);
  });

  it.each(['10', '2026-01-31T12:00:00', '2026-01-31', 'Jan 31 2026'])(
    '`weir findings` refuses the time %s as wrong usage',
    async (time) => {
      const { code, err } = await run(['findings', '--since', time, '-o', 'json'], TOKEN);
      expect([code, (JSON.parse(err) as { error: { code: string } }).error.code]).toEqual([2, 'usage']);
    },
  );

  it('`weir findings` exits with 2 if the node refuses the value of a flag', async () => {
    const problems = [{ pointer: '?src', code: 'invalid_value', message: 'Must be a network.' }];
    const body = { type: 'urn:weir:error:invalid_query', error: 'The query is not valid.', problems };
    const { url } = await serverThatAnswers({ status: 400, body });
    expect(await run(['findings', '--src', 'x', '--server', url], TOKEN)).toMatchObject({ code: 2 });
  });

  const earlier = (time: string) => new Date(Date.parse(time) - 10_000).toISOString();
  it('`weir findings --follow` prints a finding again only if its count or last time has changed, and prints the newest finding last', async () => {
    const other = { ...finding, rule: 'other', last_seen: '2026-01-31T12:00:06.000Z', count: 1 };
    const otherAgain = { ...other, count: 2 };
    const again = { ...finding, last_seen: '2026-01-31T12:00:07.000Z', count: 4 };
    const { url, asked } = await serverThatAnswers(
      page([finding]),
      page([other, finding]),
      page([other]),
      page([otherAgain]),
      page([again, otherAgain]),
    );
    const interruption = new AbortController();
    const { code, out } = await run(
      ['findings', '--follow', '--server', url, '--output', 'json'],
      TOKEN,
      { interruption: interruption.signal },
      (all) => {
        if (all.split('\n').length > 4) interruption.abort();
      },
    );
    const told = out.split('\n').slice(0, -1);
    expect([code, told.map((line) => JSON.parse(line) as unknown)]).toEqual([0, [finding, other, otherAgain, again]]);
    expect(asked.map(({ path }) => new URL(path, url).searchParams.get('since'))).toEqual([
      null,
      // The next query starts 10 s before the newest finding, because the node may store an older finding
      // later.
      earlier(finding.last_seen),
      earlier(other.last_seen),
      earlier(other.last_seen),
      earlier(other.last_seen),
    ]);
  });

  const silent = { node_id: 'node-b', error: 'no answer within 2 s' };
  it('`weir findings` with --output json names the nodes that did not respond for one of the pages', async () => {
    const { url } = await serverThatAnswers(page([finding], 'c1', [silent]), page([write]));
    const { out } = await run(['findings', '--server', url, '--output', 'json'], TOKEN);
    expect(JSON.parse(out)).toEqual({ items: [finding, write], partial: true, node_errors: [silent] });
  });

  it('`weir findings --follow` reports nodes that do not respond only when they change: in JSON as an object, else on standard error', async () => {
    for (const form of ['json', 'table']) {
      const { url, asked } = await serverThatAnswers(
        page([], null, [silent]),
        page([], null, [{ ...silent, error: 'no answer within 1 s' }]),
        page([]),
        page([finding]),
      );
      const interruption = new AbortController();
      const { out, err } = await run(
        ['findings', '--follow', '--server', url, '--output', form],
        TOKEN,
        { interruption: interruption.signal },
        (all) => {
          if (all.includes('l4_deny')) interruption.abort();
        },
      );
      expect([asked.length, err]).toEqual([4, 'node-b did not respond: no answer within 2 s\n']);
      const lines = out.trim().split('\n');
      if (form === 'table') expect(lines).toEqual([expect.stringContaining('l4_deny')]);
      else
        expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
          { partial: true, node_errors: [silent] },
          { partial: false, node_errors: [] },
          finding,
        ]);
    }
  });

  it.each([[['--since', 'yesterday']], [['--limit', '0']]])(
    '`weir findings` with the invalid flag %j exits with 2',
    async (words) => {
      expect((await run(['findings', ...words], TOKEN)).code).toBe(2);
    },
  );

  it('`weir findings` accepts a duration for --since, and subtracts this duration from the current time', async () => {
    const { url, asked } = await serverThatAnswers(page([]));
    const before = Date.now();
    await run(['findings', '--since', '10m', '--server', url], TOKEN);
    const since = Date.parse(new URL(asked[0]?.path ?? '', url).searchParams.get('since') ?? '');
    expect(since).toBeGreaterThanOrEqual(before - 600_000);
    expect(since).toBeLessThanOrEqual(Date.now() - 600_000);
  });
});

describe('weir status', () => {
  beforeEach(() => clockAt('2026-01-31T14:00:00Z'));
  const check = { name: 'policy_ready', ok: true, state: 'active', detail: 'generation 7', since: SINCE };
  const failing = {
    ...check,
    name: 'dns_allowlist',
    ok: false,
    state: 'needed_but_absent',
    detail: 'a rule names a host',
  };
  const stats = {
    generation: 7,
    dataplane: {
      active_flows: 2,
      flows_opened: 5,
      flows_closed: 3,
      flows_suspended: 2,
      flows_resumed: 1,
      forwarding: { way: 'direct', reason: 'nothing stands in the way' },
      packets: { allow: 10, deny: 3, audit: 1 },
      drops: { policy_deny: 2, malformed: 1, ipv6: 2, non_ipv4: 1 },
      non_ipv4_passed: { packets: 12, bytes: 1200 },
      maps: {
        flows: { entries: 10, capacity: 100 },
        grants: { entries: 3, capacity: 4 },
        hits: { entries: 0, capacity: 10 },
        program: { entries: 1, capacity: 10 },
      },
    },
    dns: { queries_allow: 4, queries_deny: 1, servfail: 0, grants: 3 },
    tls: { allow: 5, deny: 2, audit: 1, intercepted: 6, connections: 3 },
    http: { allow: 9, deny: 4, audit: 0, responses_deny: 1 },
  };
  const record = {
    ...{ id: 'p-1', name: 'office', form: 'envelope', mode: 'enforce', revision: 3 },
    ...{ updated_at: SINCE, updated_by: 'alice', active: true },
  };
  const started = ok({ last_reload: null });
  const ready = ok({ ready: true, in_force_since: '2026-01-29T13:00:00Z', checks: [check] });
  const unready = { status: 503, body: { ready: false, checks: [check, failing] } };

  it('`weir status` prints readiness, the active policy and the counters, and exits with 0, if the node is ready', async () => {
    const { url } = await serverThatAnswers(ready, ok(stats), ok({ items: [record] }), started);
    expect(await run(['status', '--server', url], TOKEN)).toEqual({
      code: 0,
      out: `node        ready
policy      office (enforce), revision 3, generation 7, came in force 2 d ago
config      as read at the start of the node
packets     allow 10  deny 3  audit 1  dropped 6
not IPv4    passed 12 without a policy  dropped 3
flows       2 live  5 opened  3 closed
forwarding  direct: nothing stands in the way
dns         allow 4  deny 1  servfail 0  granted 3
tls         allow 5  deny 2  audit 1  intercepted 6  live 3
http        allow 9  deny 4  audit 0  responses denied 1
fullest     grants 3/4 (75 %)  flows 10/100 (10 %)  program 1/10 (10 %)

    CHECK         STATE   SINCE    DETAIL
ok  policy_ready  active  2 h ago  generation 7
`,
      err: '',
    });
  });

  it.each([
    [{ result: 'applied', detail: null }, 'reloaded 2 h ago by SIGHUP: 1 changed  needs a restart: /node/id'],
    [{ result: 'rolled_back', detail: 'EADDRINUSE' }, 'not reloaded 2 h ago by SIGHUP (rolled_back): EADDRINUSE'],
  ])('`weir status` shows the last reload of the configuration', async (last, text) => {
    const more = { at: SINCE, by: 'SIGHUP', applied: ['/log/level'], needs_restart: ['/node/id'] };
    const { url } = await serverThatAnswers(
      ready,
      ok(stats),
      ok({ items: [] }),
      ok({ last_reload: { ...more, ...last } }),
    );
    const { out } = await run(['status', '--server', url], TOKEN);
    expect(out.split('\n')[2]).toBe(`config      ${text}`);
  });

  it('`weir status` exits with 3 while a readiness check fails, with text output and with JSON output', async () => {
    const { url } = await serverThatAnswers(unready, ok(stats), ok({ items: [] }), started);
    const { code, out } = await run(['status', '--server', url], TOKEN);
    expect([code, out.split('\n').slice(0, 2)]).toEqual([
      3,
      ['node        not ready: 1 of 2 checks fail', 'policy      no policy is active: policy.fallback decides'],
    ]);
    expect(out).toContain('\nFAILS  dns_allowlist  needed_but_absent  2 h ago  a rule names a host\n');
    const again = await serverThatAnswers(unready, ok(stats), ok({ items: [record] }), started);
    const json = await run(['status', '--output', 'json', '--server', again.url], TOKEN);
    expect([json.code, JSON.parse(json.out)]).toEqual([
      3,
      { readiness: unready.body, policy: record, stats, last_reload: null },
    ]);
  });

  it('`weir status` with --exclude sends the names of the checks to the node, and shows an excluded check that fails', async () => {
    const answer = ok({ ready: true, checks: [check, { ...failing, excluded: true }] });
    const { url, asked } = await serverThatAnswers(answer, ok(stats), ok({ items: [record] }), started);
    const { code, out } = await run(['status', '--exclude', 'dns_allowlist,cluster', '--server', url], TOKEN);
    expect([code, asked[0]?.path, out.split('\n')[0]]).toEqual([
      0,
      '/ready?exclude=dns_allowlist%2Ccluster',
      'node        ready',
    ]);
    expect(out).toContain('\nexcluded  dns_allowlist  needed_but_absent  2 h ago  a rule names a host\n');
  });

  it('`weir status` with --wait repeats the readiness request until the node responds and is ready', async () => {
    const { url, asked } = await serverThatAnswers(
      { status: 502, body: '' },
      unready,
      ready,
      ok(stats),
      ok({ items: [record] }),
      started,
    );
    expect((await run(['status', '--wait', '--server', url], TOKEN)).code).toBe(0);
    const read = ['/api/v1/stats', '/api/v1/policies', '/api/v1/config/reload'];
    expect(asked.map(({ path }) => path)).toEqual(['/ready', '/ready', '/ready', ...read]);
  });

  it('`weir status` with --wait exits with 3 if the node is not ready before the timeout', async () => {
    const { url } = await serverThatAnswers(unready, ok(stats), ok({ items: [] }), started);
    expect((await run(['status', '--wait', '--timeout', '1ms', '--server', url], TOKEN)).code).toBe(3);
  });
});

describe('weir performance-mode', () => {
  it('`weir performance-mode` prints whether performance mode is on, or sets performance mode with the argument on or off', async () => {
    const { url, asked } = await serverThatAnswers(
      ok({ enabled: true, source: null }),
      ok({ enabled: false, source: 'local' }),
    );
    const told = [
      await run(['performance-mode', '--server', url], TOKEN),
      await run(['performance-mode', 'off', '--server', url], TOKEN),
    ];
    expect(told.map(({ out }) => out)).toEqual([
      'performance mode is on (the default)\n',
      'performance mode is off (set for this node)\n',
    ]);
    expect(asked.map(({ method, body }) => [method, body])).toEqual([
      ['GET', ''],
      ['PUT', '{"enabled":false}'],
    ]);
    expect((await run(['performance-mode', 'maybe', '--server', url], TOKEN)).code).toBe(2);
  });
});

describe('weir dns-cache', () => {
  beforeEach(() => clockAt('2026-01-31T14:00:00Z'));
  it('`weir dns-cache` with --name lists the DNS names that contain the given text, with their addresses, patterns and expiry', async () => {
    const entry = {
      hostname: 'api.example.com',
      ips: ['192.0.2.1', '192.0.2.2'],
      patterns: ['*.example.com'],
      expires_at: '2026-01-31T14:00:30.000Z',
      last_seen: '2026-01-31T13:59:55.000Z',
    };
    const { url } = await serverThatAnswers(ok({ items: [entry, { ...entry, hostname: 'other.test' }] }));
    expect(await run(['dns-cache', '--name', 'EXAMPLE', '--server', url], TOKEN)).toEqual({
      code: 0,
      out: `NAME             ADDRESSES            PATTERNS       EXPIRES  LAST SEEN
api.example.com  192.0.2.1 192.0.2.2  *.example.com  in 30 s  5 s ago
`,
      err: '',
    });
  });
});
