import { describe, expect, it } from 'vitest';
import { LISTED_FLOW as flow } from '#test/api/listed-flow.js';
import { clockAt, ok, run, serverThatAnswers, TOKEN } from './cli-run.js';

const used = {
  decided_by: 'rule',
  source_group: 'lan',
  rule: 'web',
  packets: 12,
  bytes: 1_200,
  last_hit: '2026-01-31T12:00:00.000Z',
  unused: false,
  unused_since: null,
};
const unused = {
  ...used,
  packets: 0,
  bytes: 0,
  last_hit: null,
  unused: true,
  unused_since: '2026-01-01T00:00:00.000Z',
};
const hits = (items: unknown[], next: string | null) => ({
  policy_id: 'p',
  revision: 1,
  generation: 7,
  since: '2026-01-01T00:00:00.000Z',
  items,
  next_cursor: next,
});

describe('weir hits', () => {
  it('`weir hits` prints the rule hits of all pages as one table', async () => {
    clockAt('2026-01-31T12:03:00.000Z');
    const { url, asked } = await serverThatAnswers(
      ok(hits([used, { ...unused, rule: 'dns' }], '7.2')),
      ok(
        hits(
          [
            { ...used, rule: null },
            { ...unused, source_group: null, rule: null },
          ],
          null,
        ),
      ),
    );
    expect(await run(['hits', '--server', url], TOKEN)).toEqual({
      code: 0,
      out: `GROUP     RULE       PACKETS  BYTES  LAST HIT
lan       web        12       1200   3 min ago
lan       dns        0        0      never, since 30 d ago
lan       (default)  12       1200   3 min ago
(policy)  (default)  0        0      never, since 30 d ago
`,
      err: '',
    });
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/policy/hits', '/api/v1/policy/hits?cursor=7.2']);
  });

  it('`weir hits` sends the filters --group, --rule and --unused to the node, and prints the response without the cursor with --output json', async () => {
    const { url, asked } = await serverThatAnswers(ok(hits([used], null)));
    const words = ['hits', '--group', 'lan', '--rule', 'web', '--unused', '--server', url, '--output', 'json'];
    const { code, out } = await run(words, TOKEN);
    const { next_cursor: _, ...told } = hits([used], null);
    expect([code, JSON.parse(out)]).toEqual([0, { ...told, partial: false, node_errors: [] }]);
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/policy/hits?group=lan&rule=web&unused=true']);
  });
});

describe('weir hits with a name that the active policy lacks', () => {
  it.each([
    ['--group', 'TYPO', 'the active policy has no source group TYPO'],
    ['--rule', 'TYPO', 'the active policy has no rule TYPO'],
  ])(
    '`weir hits` exits with 1 for the flag %s with a name that the active policy lacks',
    async (flag, name, message) => {
      const { url } = await serverThatAnswers(ok(hits([], null)), ok(hits([used], null)));
      const { code, out, err } = await run(['hits', flag, name, '--server', url], TOKEN);
      expect([code, out, err.split('\n')[0]]).toEqual([1, '', `weir: ${message}`]);
    },
  );

  it('`weir hits` prints an empty table if the named group exists and only the filter finds nothing', async () => {
    const { url } = await serverThatAnswers(ok(hits([], null)), ok(hits([used], null)));
    expect(await run(['hits', '--group', 'lan', '--unused', '--server', url], TOKEN)).toMatchObject({
      code: 0,
      err: '',
    });
  });
});

describe('weir flows', () => {
  it('`weir flows` prints the flows of all pages up to the limit, and the number of all matching flows', async () => {
    const echo = { ...flow, proto: 1, src_port: null, dst_port: null, icmp_id: 77, rule: null };
    const foreign = { ...flow, proto: 47, verdict: null, decided_by: 'nobody', source_group: null, rule: null };
    const { url, asked } = await serverThatAnswers(
      ok({ matched: 9, items: [flow, echo], next_cursor: 'AAAA' }),
      ok({ matched: 9, items: [foreign], next_cursor: 'BBBB' }),
    );
    expect(await run(['flows', '--limit', '3', '--proto', 'tcp', '1', '--server', url], TOKEN)).toEqual({
      code: 0,
      out: `PROTO  SOURCE          DESTINATION    STATE            VERDICT  RULE           PACKETS  BYTES    EXPIRES
tcp    10.0.0.1:40000  192.0.2.1:443  tcp_established  allow    lan/web        3/2      300/200  60s
icmp   10.0.0.1:77     192.0.2.1      tcp_established  allow    lan (default)  3/2      300/200  60s
47     10.0.0.1:40000  192.0.2.1:443  tcp_established  -        (nobody)       3/2      300/200  60s
`,
      err: '3 of 9 flows; --limit shows more\n',
    });
    expect(asked.map(({ method, path }) => `${method} ${path}`)).toEqual([
      'GET /api/v1/flows?proto=tcp&proto=1&limit=3',
      'GET /api/v1/flows?proto=tcp&proto=1&limit=1&cursor=AAAA',
    ]);
  });

  it('`weir flows` prints the addresses and ports after NAT if a flow has a translation', async () => {
    const wire = { src: flow.src, dst: flow.dst, src_port: flow.src_port, dst_port: flow.dst_port, icmp_id: null };
    const source = { ...flow, translation: { ...wire, src: '203.0.113.1' } };
    const both = { ...flow, translation: { ...wire, src_port: 1_024, dst: '203.0.113.2', dst_port: 80 } };
    const { url } = await serverThatAnswers(ok({ matched: 3, items: [flow, source, both], next_cursor: null }));
    const { out } = await run(['flows', '--server', url], TOKEN);
    expect(out.split('\n').map((line) => line.split(/ {2,}/).at(-1))).toEqual([
      'TRANSLATION',
      '-',
      'snat 203.0.113.1:40000',
      'snat 10.0.0.1:1024, dnat 203.0.113.2:80',
      '',
    ]);
  });

  it('`weir flows` prints the pods and nodes that own the addresses', async () => {
    const pod = { integration: 'prod', kind: 'pod', namespace: 'shop', name: 'web-5d4f' };
    const node = { integration: 'prod', kind: 'node', namespace: null, name: 'worker-1' };
    const { url } = await serverThatAnswers(
      ok({ matched: 1, items: [{ ...flow, src_owner: pod, dst_owner: node }], next_cursor: null }),
    );
    const { out } = await run(['flows', '--server', url], TOKEN);
    expect(out).toContain('  shop/web-5d4f (10.0.0.1:40000)  node worker-1 (192.0.2.1:443)  ');
  });

  it('`weir flows` with --output json prints the response without the cursor', async () => {
    const { url } = await serverThatAnswers(ok({ matched: 1, items: [flow], next_cursor: null }));
    const { out } = await run(['flows', 'list', '--server', url, '--output', 'json'], TOKEN);
    expect(JSON.parse(out)).toEqual({ matched: 1, items: [flow], partial: false, node_errors: [] });
  });

  it('`weir flows cut` removes the flows that the flags select, and with --dry-run only prints the number of these flows', async () => {
    const { url, asked } = await serverThatAnswers(ok({ cut: 1, dry_run: false }), ok({ cut: 12, dry_run: true }));
    const flags = [
      ...['--src', '10.0.0.0/8', '--dst', '192.0.2.1', '--port', '443', '--src-port', '1-2', '--dst-port', '53'],
      ...['--group', 'lan', '--rule', 'web', '--verdict', 'audit', '--state', 'tcp_reset', '--min-bytes', '5'],
    ];
    const told = [
      await run(['flows', 'cut', ...flags, '--server', url], TOKEN),
      await run(['flows', 'cut', '--all', '--dry-run', '--server', url], TOKEN),
    ];
    expect(told.map(({ out }) => out)).toEqual(['1 flow cut\n', '12 flows would be cut\n']);
    expect(asked.map(({ method, path }) => `${method} ${decodeURIComponent(path)}`)).toEqual([
      'DELETE /api/v1/flows?src=10.0.0.0/8&dst=192.0.2.1&port=443&src_port=1-2&dst_port=53&group=lan&rule=web' +
        '&verdict=audit&state=tcp_reset&min_bytes=5',
      'DELETE /api/v1/flows?all=true&dry_run=true',
    ]);
  });

  it.each([
    [['flows', '--limit', '0']],
    [['flows', 'cut', '--everything']],
    [['flows', 'cut', '--min-bytes', '']],
    [['flows', 'cut', '--min-bytes', '1e2']],
    [['flows', 'list', '--min-bytes', '0x10']],
  ])('the commands of `weir flows` exit with 2 for the invalid arguments %j', async (words) => {
    expect((await run(words, TOKEN)).code).toBe(2);
  });
});
