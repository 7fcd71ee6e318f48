import { describe, expect, test } from 'vitest';
import { NO_SELECTORS } from '#contracts/kubernetes/membership.js';
import type { ExplainNode } from '#contracts/policy/explain-facts.js';
import type { TlsMatchConfig } from '#contracts/policy/policy-document.js';
import type { Grants, HostnamePattern, Packet, Rule } from '#contracts/policy/policy-model.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { evaluateLookup } from '#policy/evaluate/lookup/evaluate-lookup.js';
import { explain } from '#policy/explain/explain.js';
import type { ConnectionFacts } from '#policy/explain/explain-connection.js';
import { NO_NODE } from '#policy/explain/node-effects.js';
import { matchesHostname } from '#policy/model/names/hostname.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import { generatePolicy, packetGenerator } from '#test/policy/generate.js';
import { address, group, icmp, ipv6Packet, packet, policy, rule, selector } from '#test/policy/sample.js';
import { Random, seedOf } from '#test/seed.js';

const API: HostnamePattern = { kind: 'exact', labels: ['api', 'example', 'com'], text: 'api.example.com' };
const OTHER: HostnamePattern = { kind: 'exact', labels: ['other', 'example'], text: 'other.example' };

const UNOWNED = { owners: { source: null, destination: null }, selected_by: null };

describe('`explain`', () => {
  test('`explain` adds "source port 0 was assumed" to the reason only if another source port can change the decision', () => {
    const reasonOf = (...rules: ReturnType<typeof rule>[]) =>
      explain(policy([group(['10.0.0.0/8'], rules)]), { packet: packet({ sourcePort: 0 }), sourcePortAssumed: true })
        .reason;
    const [low, high] = [rule({ id: 'low', from: ['0-1023'] }), rule({ id: 'high', from: ['1024-65535'] })];
    expect(reasonOf(low)).toMatch(/^rule low .*; source port 0 was assumed$/);
    expect(reasonOf(high, rule({ id: 'rest' }))).toMatch(/^rule rest .*; source port 0 was assumed$/);
    expect(reasonOf(rule({ id: 'rest' }), low)).not.toContain('assumed');
    expect(reasonOf(rule({ id: 'udp', protocol: 17, from: ['0-1023'] }), rule({ id: 'rest' }))).not.toContain(
      'assumed',
    );
  });

  test('`explain` returns, for each group and rule up to the deciding rule, why the group or rule matched or did not match', () => {
    const given = policy([
      group(['172.16.0.0/12'], [rule()], { id: 'elsewhere' }),
      group([], [rule({ id: 'any' }), rule({ id: 'ssh', action: 'deny', ports: ['22'] })], {
        id: 'pods',
        selectors: [selector('web')],
      }),
      group(
        ['10.0.0.0/8'],
        [
          rule({ id: 'far', to: ['198.51.100.0/24'] }),
          rule({ id: 'named', hostname: API }),
          rule({ id: 'udp', protocol: 17 }),
          rule({ id: 'low', from: ['0-1023'] }),
          rule({ id: 'web', ports: ['80'] }),
          rule({ id: 'ping', icmpTypes: [8] }),
          rule({ id: 'https', action: 'deny', mode: 'audit', protocol: 6, ports: ['443'] }),
          rule({ id: 'rest' }),
        ],
        { id: 'office' },
      ),
    ]);
    const office = (rule: string, why: string) => ({ source_group: 'office', rule, matched: false, why });
    expect(explain(given, { packet: packet() })).toEqual({
      decision: 'deny',
      effective_action: 'allow',
      mode: 'audit',
      source_group: 'office',
      rule: 'https',
      ...UNOWNED,
      reason:
        'rule https of source group office is the first that matches: denied in audit mode, so it passes and a finding is recorded',
      walk: [
        { source_group: 'elsewhere', rule: null, matched: false, why: 'source 10.0.0.1 is not among its sources' },
        {
          source_group: 'pods',
          rule: 'any',
          matched: false,
          why: 'the selectors of its group were never resolved, so it allows nothing from this source',
        },
        {
          source_group: 'pods',
          rule: 'ssh',
          matched: false,
          why: 'destination port 443 is not among its destination ports',
        },
        office('far', 'destination 192.0.2.1 is not among its destinations'),
        office('named', 'destination 192.0.2.1 is not granted for api.example.com'),
        office('udp', 'it is for udp, and the packet is tcp'),
        office('low', 'source port 40000 is not among its source ports'),
        office('web', 'destination port 443 is not among its destination ports'),
        office('ping', 'it has ICMP types or codes, and the packet is tcp'),
        { source_group: 'office', rule: 'https', matched: true, why: 'all its matchers match' },
      ],
      walk_omitted: 0,
      unknown: [],
    });
  });

  test('`explain` returns the reasons of rules with ICMP types, codes, ports and TLS for an ICMP packet, and ends at the default action', () => {
    const given = policy([
      group(
        ['10.0.0.0/8'],
        [
          rule({ id: 'types', icmpTypes: [0] }),
          rule({ id: 'codes', icmpCodes: [1, 2] }),
          rule({ id: 'ports', ports: ['80'] }),
          rule({ id: 'tls', tls: {} }),
        ],
        { id: 'office', defaultAction: 'allow' },
      ),
    ]);
    const office = (rule: string, why: string) => ({ source_group: 'office', rule, matched: false, why });
    expect(explain(given, { packet: icmp(8) })).toEqual({
      decision: 'allow',
      effective_action: 'allow',
      mode: 'enforce',
      source_group: 'office',
      rule: null,
      ...UNOWNED,
      reason: 'no rule matches before the default action of source group office: allowed',
      walk: [
        office('types', 'ICMP type 8 is not among its types'),
        office('codes', 'ICMP code 0 is not among its codes'),
        office('ports', 'it has ports, and icmp has none'),
        office('tls', 'a TLS rule matches TCP only, and the packet is icmp'),
        {
          source_group: 'office',
          rule: null,
          matched: true,
          why: 'no rule of the group matches, and its default action is allow',
        },
      ],
      walk_omitted: 0,
      unknown: [],
    });
  });

  test('`explain` treats the destination as granted for the hostname that the question names', () => {
    const given = policy([group(['10.0.0.1'], [rule({ id: 'api', hostname: API })], { id: 'office' })]);
    expect(explain(given, { packet: packet(), hostname: 'api.example.com' }).rule).toBe('api');
    expect(explain(given, { packet: packet(), hostname: 'other.example' }).walk).toEqual([
      { source_group: 'office', rule: 'api', matched: false, why: 'other.example does not match api.example.com' },
      { source_group: null, rule: null, matched: true, why: 'no group decides, and the default is deny' },
    ]);
  });

  const NODE = NO_NODE;
  const CN = { tls: { server_cn: 'a' } } as const;
  const NO_ECH = { action: 'deny', tls: { ech: 'present' } } as const;
  const HTTP = { mode: 'intercept', http: { request: { methods: ['GET'], path: { prefix: ['/v1/'] } } } } as const;
  const get = (path: string) => ({ sni: 'a.test', http: { method: 'GET', path } });

  test.each<[string, Partial<Rule>, ConnectionFacts, Partial<ExplainNode>, string, string, readonly string[]]>([
    ['a rule for any TLS', { tls: {} }, {}, {}, 'allow', 'office/tls', []],
    ['a server name that matches', { tls: { sni: ['a.test'] } }, { sni: 'A.test.' }, {}, 'allow', 'office/tls', []],
    ['a different server name', { tls: { sni: ['a.test'] } }, { sni: 'b.test' }, {}, 'deny', 'null/null', []],
    ['an allow rule, no SNI given', { tls: { sni: ['a.test'] } }, {}, {}, 'deny', 'null/null', ['sni']],
    ['a deny rule, no SNI given', { action: 'deny', tls: { sni: ['a.test'] } }, {}, {}, 'deny', 'office/tls', ['sni']],
    ['a deny rule in audit mode', { action: 'deny', mode: 'audit', tls: {} }, {}, {}, 'audit', 'office/tls', []],
    ['a TLS rule while no service plane runs', { tls: {} }, {}, { plane: 'absent' }, 'deny', 'office/tls', []],
    ['audit mode, no service plane', { mode: 'audit', tls: {} }, {}, { plane: 'absent' }, 'audit', 'office/tls', []],
    ['a TLS rule while the node has no CA', { tls: {} }, {}, { plane: 'no_ca' }, 'allow', 'office/tls', []],
    ['an intercept rule without a node CA', { tls: HTTP }, get('/v1/a'), { plane: 'no_ca' }, 'deny', 'office/tls', []],
    ['an HTTP request that matches the intercept rule', { tls: HTTP }, get('/v1/a'), {}, 'allow', 'office/tls', []],
    ['an HTTP request that does not match the intercept rule', { tls: HTTP }, get('/v2'), {}, 'deny', 'null/null', []],
    [
      'an intercept rule and a question without an HTTP request',
      { tls: HTTP },
      { sni: 'a.test' },
      {},
      'deny',
      'null/null',
      ['http.method', 'http.path'],
    ],
    [
      'an HTTP request whose host is not the server name',
      { tls: HTTP },
      { sni: 'a.test', http: { host: 'b.test' } },
      {},
      'deny',
      'office/tls',
      [],
    ],
    ['a granted destination', { hostname: API }, {}, { granted: ['api.example.com'] }, 'allow', 'office/tls', []],
    ['a destination that is not granted', { hostname: API }, {}, {}, 'deny', 'null/null', []],
    ['unknown grants of a hostname rule', { hostname: API }, {}, { granted: null }, 'deny', 'null/null', ['grants']],
    ['a packet to the node itself', { action: 'deny' }, {}, { own: [packet().destination] }, 'allow', 'null/null', []],
    [
      'an allowed name in the outer ClientHello of ECH',
      { tls: { sni: ['a.test'] } },
      { sni: 'a.test', tls: { hello: 'ech' } },
      {},
      'allow',
      'office/tls',
      [],
    ],
    [
      'another name in the outer ClientHello of ECH, which the deny rule does not match',
      { action: 'deny', tls: { sni: ['a.test'] } },
      { sni: 'b.test', tls: { hello: 'ech' } },
      {},
      'deny',
      'null/null',
      [],
    ],
    ['ECH, a deny rule with `ech`', NO_ECH, { tls: { hello: 'ech' } }, {}, 'deny', 'office/tls', []],
    ['a hello without ECH, a deny rule with `ech`', NO_ECH, { tls: { hello: 'plain' } }, {}, 'deny', 'null/null', []],
    ['a hello that the question does not describe', NO_ECH, { sni: 'a' }, {}, 'deny', 'null/null', ['tls.hello']],
    ['no TLS, a deny rule with `ech`', NO_ECH, { tls: { hello: 'not_tls' } }, {}, 'deny', 'office/tls', []],
    ['no TLS, an allow rule', { tls: {} }, { tls: { hello: 'not_tls' } }, {}, 'deny', 'null/null', []],
    ['no TLS, a deny rule', { action: 'deny', tls: {} }, { tls: { hello: 'not_tls' } }, {}, 'deny', 'office/tls', []],
    [
      'a trusted certificate',
      CN,
      { tls: { server_cn: 'a', version: '1.2', trusted: true } },
      {},
      'allow',
      'office/tls',
      [],
    ],
    [
      'an untrusted certificate',
      CN,
      { tls: { server_cn: 'a', version: '1.2', trusted: false } },
      {},
      'deny',
      'null/null',
      [],
    ],
    [
      'a certificate whose trust the question does not state',
      CN,
      { tls: { server_cn: 'a', version: '1.2' } },
      {},
      'allow',
      'office/tls',
      ['tls.trusted'],
    ],
    ['a dataplane that does not run', {}, {}, { dataplane: 'away' }, 'allow', 'office/tls', ['dataplane']],
    [
      'a packet that the node sends while the node polices its own packets',
      {},
      {},
      { own: [packet().source], policesNode: true },
      'allow',
      'office/tls',
      [],
    ],
    [
      'a TLS connection that the node opens while the node polices its own packets',
      { tls: {} },
      {},
      { own: [packet().source], policesNode: true },
      'deny',
      'office/tls',
      [],
    ],
  ])(
    '`explain` returns the decision, the deciding rule and the missing facts for a question about a TCP connection: %s',
    (_, given, question, node, verdict, by, unknown) => {
      const all = policy([group(['10.0.0.1'], [rule({ id: 'tls', ...given })], { id: 'office' })]);
      const explained = explain(all, { packet: packet(), connection: question, node: { ...NODE, ...node } });
      expect([`${explained.source_group}/${explained.rule}`, explained.unknown]).toEqual([by, unknown]);
      const { decision, effective_action: effective } = explained;
      expect([decision, effective]).toEqual(
        verdict === 'audit' ? ['deny', 'allow'] : verdict === 'allow' ? ['allow', 'allow'] : ['deny', 'deny'],
      );
    },
  );

  test.each([
    ['/v2', 'its matcher request.path does not match the request', null],
    ['/v1/../v2', 'its matcher request.path does not match the normalised form of the path', 'normalised form decides'],
    ['/v1/..%2fv2', 'its matcher request.path does not match the decoded form of the path', 'decoded form decides'],
    ['/v1/%00', 'its matcher request.path does not match: servers read the path in different ways', 'is reliable'],
  ])(
    '`explain` names the HTTP matcher that does not match, and the form (raw, normalised or decoded) of the request path %s that decided',
    (path, sentence, special) => {
      const all = policy([group(['10.0.0.1'], [rule({ id: 'tls', tls: HTTP })], { id: 'office' })]);
      const { walk, reason } = explain(all, { packet: packet(), connection: get(path), node: NODE });
      expect(JSON.stringify(walk)).toContain(sentence);
      expect(special === null || reason.includes(special)).toBe(true);
    },
  );

  test.each<[ConnectionFacts, TlsMatchConfig, string]>([
    [{}, { sni: ['a.test'] }, 'the client sends no server name'],
    [{ tls: { hello: 'not_tls' } }, { sni: ['a.test'] }, 'the client does not send TLS'],
    [{ tls: { hello: 'not_tls' } }, HTTP, 'the client does not send TLS'],
    [{ tls: { server_cn: 'a', trusted: false } }, { server_cn: 'a' }, 'the certificate of the server is not trusted'],
  ])(
    '`explain` says in the reason and at the allow rule why TLS matchers cannot be decided for the connection %j',
    (question, tls, cause) => {
      const all = policy([group(['10.0.0.1'], [rule({ id: 'tls', tls })], { id: 'office' })]);
      const { walk, reason } = explain(all, { packet: packet(), connection: question, node: NODE });
      expect(walk[0]?.why).toBe(`its TLS matchers cannot be decided, and an allow then does not match: ${cause}`);
      expect(reason).toContain(`${cause}: an allow rule then does not match, and a deny rule does`);
      const deny = policy([group(['10.0.0.1'], [rule({ id: 'tls', tls, action: 'deny' })])]);
      expect(explain(deny, { packet: packet(), connection: question, node: NODE }).reason).toContain(
        `denied; ${cause}`,
      );
    },
  );

  const lan = { policed: ['lan0', 'wan0'], by: { interface: 'lan0' } } as const;
  const strict = { reversePath: 'strict', arrival: lan } as const;
  const dmz = { ...strict, arrival: { ...lan, by: { interface: 'dmz0' } } } as const;
  const flow = {
    isReply: false,
    isCurrent: true,
    isSuspended: false,
    verdict: 'allow',
    group: 'old',
    rule: 'r1',
  } as const;
  const lookup = { destinationPort: 53, protocol: 17 };

  test.each<
    [
      string,
      Partial<Pick<Packet<number>, 'protocol' | 'destinationPort'>>,
      string | undefined,
      Partial<ExplainNode>,
      string,
      string,
      readonly string[],
      RegExp,
    ]
  >([
    ['arrival by the interface of the route to the source', {}, 'lan0', strict, 'deny', 'deny', [], /default_policy/],
    ['a question without an interface', {}, undefined, strict, 'deny', 'deny', [], /default_policy/],
    [
      'a packet that arrives by another interface, with reverse_path strict',
      {},
      'wan0',
      strict,
      'deny',
      'deny',
      [],
      /arrive on lan0, not on wan0: .* spoofed_source$/,
    ],
    [
      'a packet that arrives by another interface, with reverse_path loose',
      {},
      'wan0',
      { ...strict, reversePath: 'loose' },
      'deny',
      'deny',
      [],
      /default_policy/,
    ],
    [
      'a packet that arrives by an interface without policy',
      {},
      'dmz0',
      strict,
      'allow',
      'allow',
      [],
      /dataplane.interfaces does not contain it/,
    ],
    [
      'a source whose route leads to an interface without policy',
      {},
      undefined,
      dmz,
      'allow',
      'allow',
      ['interface'],
      /dmz0, which is not policed: packets that arrive there pass without a policy/,
    ],
    [
      'a source to which the node has no route',
      {},
      undefined,
      { ...strict, arrival: { ...lan, by: 'nowhere' } },
      'deny',
      'deny',
      [],
      /no route/,
    ],
    [
      'a node whose routes depend on more than the destination address',
      {},
      undefined,
      { ...strict, arrival: { ...lan, by: 'unknown' } },
      'deny',
      'deny',
      ['interface'],
      /default_policy/,
    ],
    ['a diverted DNS query', lookup, undefined, { diverts: 'proxy' }, 'allow', 'allow', ['query'], /dns.transparent/],
    [
      'a DNS query that the datapath diverts while no DNS proxy runs',
      lookup,
      undefined,
      { diverts: 'absent' },
      'deny',
      'deny',
      [],
      /dns_proxy_absent$/,
    ],
    ['a DNS query that the datapath does not divert', lookup, undefined, {}, 'deny', 'deny', [], /default_policy/],
    [
      'a DNS query sent to the node',
      lookup,
      undefined,
      { diverts: 'proxy', own: [packet().destination] },
      'allow',
      'allow',
      [],
      /police_local/,
    ],
    ['a node without a dataplane', {}, undefined, { dataplane: 'absent' }, 'deny', 'allow', [], /no dataplane section/],
    ['an open flow', {}, undefined, { flow }, 'allow', 'allow', [], /rule r1 of source group old allowed it/],
    [
      'a packet in an open flow with verdict audit',
      {},
      undefined,
      { flow: { ...flow, verdict: 'audit' } },
      'deny',
      'allow',
      [],
      /allowed it/,
    ],
    [
      'a reply in an open flow',
      {},
      undefined,
      { flow: { ...flow, isReply: true } },
      'allow',
      'allow',
      [],
      /^The packet is a reply/,
    ],
    [
      'a packet in an open flow that an older policy decided',
      {},
      undefined,
      { flow: { ...flow, isCurrent: false } },
      'deny',
      'deny',
      [],
      /its next packet is classified again$/,
    ],
    [
      'a packet in a suspended flow',
      {},
      undefined,
      { flow: { ...flow, isCurrent: false, isSuspended: true, verdict: 'deny' } },
      'deny',
      'deny',
      [],
      /is suspended: a policy denied it after it was open, and it goes on when a policy allows it$/,
    ],
  ])(
    '`explain` takes interfaces, routes, DNS redirection and flows of the node into account: %s',
    (_, changed, ingress, node, decision, effective, unknown, reason) => {
      const given = { packet: packet(changed), ingress, node: { ...NODE, ...node } };
      const explained = explain(policy([]), given);
      expect(explained.reason).toMatch(reason);
      expect([explained.decision, explained.effective_action, explained.unknown]).toEqual([
        decision,
        effective,
        unknown,
      ]);
    },
  );

  test.each(['127.0.0.1', '127.255.255.255'])(
    '`explain` returns deny from and to the loopback address %s',
    (loopback) => {
      const all = policy([group(['0.0.0.0/0'], [rule()])]);
      expect(explain(all, { packet: packet({ source: loopback }) }).decision).toBe('deny');
      expect(explain(all, { packet: packet({ destination: loopback }) }).decision).toBe('deny');
    },
  );

  test.each<
    [what: string, source: string, destination: string, node: Partial<ExplainNode>, decision: string, reason: RegExp]
  >([
    ['::1', '::1', '2001:db8::2', {}, 'deny', /must not have an address ::1 or in ::ffff:0:0\/96/],
    ['an IPv4-mapped address', '2001:db8::1', '::ffff:10.0.0.1', {}, 'deny', /must not have an address ::1/],
    ['a multicast source', 'ff02::1', '2001:db8::2', {}, 'deny', /^ff02::1 is not a valid source address/],
    ['a node with ipv6: drop', '2001:db8::1', '2001:db8::2', { ipv6: 'drop' }, 'deny', /dataplane.ipv6 is drop/],
    ['a node with ipv6: pass', '2001:db8::1', '2001:db8::2', { ipv6: 'pass' }, 'allow', /dataplane.ipv6 is pass/],
    ['a node with ipv6: enforce', '2001:db8::1', '2001:db8::2', {}, 'allow', /^rule rule of source group group/],
    [
      'an address of the node',
      '2001:db8::1',
      'fd00::1',
      { own: [(0xfd00n << 112n) | 1n] },
      'allow',
      /police_local is false/,
    ],
  ])(
    '`explain` decides a packet of IPv6 as the datapath does: %s',
    (_, source, destination, node, decision, reason) => {
      const all = policy([group(['::/0'], [rule()])]);
      const explained = explain(all, {
        packet: ipv6Packet({ source, destination }),
        node: { ...NO_NODE, ...node },
      });
      expect(explained.decision).toBe(decision);
      expect(explained.reason).toMatch(reason);
    },
  );

  test('`explain` returns for a DNS query the reason why each rule does not decide the query', () => {
    const given = policy(
      [
        group(
          ['10.0.0.1'],
          [
            rule({ id: 'other', hostname: OTHER }),
            rule({ id: 'net', to: ['192.0.2.0/24'] }),
            rule({ id: 'web', action: 'deny', protocol: 6 }),
            rule({ id: 'ping', protocol: 1 }),
          ],
          { id: 'office' },
        ),
        group(['10.0.0.0/8'], [], { id: 'empty' }),
      ],
      { from: 'default_policy' },
    );
    const office = (rule: string, why: string) => ({ source_group: 'office', rule, matched: false, why });
    expect(explain(given, { source: address('10.0.0.1'), query: 'api.example.com' })).toEqual({
      decision: 'deny',
      effective_action: 'deny',
      mode: 'enforce',
      source_group: null,
      rule: null,
      ...UNOWNED,
      reason: 'no rule and no default action matches, so default_policy decides: denied',
      walk: [
        office('other', 'api.example.com does not match other.example'),
        office('net', 'it has destinations and no hostname, so it does not decide lookups'),
        office('web', 'it denies only a part of the traffic to the name, so it does not deny the lookup'),
        office('ping', 'it has no hostname and allows neither TCP nor UDP port 53'),
        { source_group: 'empty', rule: null, matched: false, why: 'it has neither rules nor a default action' },
        { source_group: null, rule: null, matched: true, why: 'no group decides, and the default is deny' },
      ],
      walk_omitted: 0,
      unknown: [],
    });
  });

  test('`explain` names the owners of the addresses, and the selector of the group that selects the source', () => {
    const [web, batch] = [selector('web'), selector('batch')];
    const given = policy([
      group(['172.16.0.0/12'], [rule()], { id: 'elsewhere' }),
      group([], [rule({ id: 'far', to: ['198.51.100.0/24'] }), rule({ id: 'any' })], {
        id: 'pods',
        selectors: [batch, web],
      }),
    ]);
    const members = new MemberRecord();
    const source = address('10.0.0.1');
    members.change({
      added: [{ number: 1, keys: [web.key] }],
      addresses: [source],
      sets: Uint32Array.of(1),
      dropped: [],
    });
    const resolution = { ...NO_SELECTORS, resolved: new Set([web.key, batch.key]) };
    const own = (name: string) => ({ integration: 'prod', kind: 'pod', namespace: 'shop', name }) as const;
    const asked = packet();
    const owners = [
      { address: source, owner: own('web') },
      { address: asked.destination, owner: own('api') },
    ];
    const explained = explain(given, { packet: asked, owners }, { membership: { resolution, members } });
    expect(explained).toMatchObject({
      owners: { source: own('web'), destination: own('api') },
      source_group: 'pods',
      rule: 'any',
      selected_by: web.source,
    });
    expect(explained.walk.slice(0, 2).map(({ why }) => why)).toEqual([
      'source 10.0.0.1 (pod shop/web of prod) is not among its sources',
      'destination 192.0.2.1 (pod shop/api of prod) is not among its destinations',
    ]);
    const lookup = { source, query: 'api.example.com', owners };
    expect(explain(given, lookup, { membership: { resolution, members } })).toMatchObject({
      owners: { source: own('web'), destination: null },
      selected_by: web.source,
    });
    const nets = { ...resolution, networks: new Map([[batch.key, [{ address: address('10.0.0.0'), length: 24 }]]]) };
    expect(explain(given, { packet: asked }, { membership: { resolution: nets, members } }).selected_by).toEqual(
      batch.source,
    );
    const unresolved = { ...nets, resolved: new Set<string>() };
    expect(
      explain(given, { packet: asked }, { membership: { resolution: unresolved, members } }).selected_by,
    ).toBeNull();
  });

  test('`explain` returns 1,000 steps of an evaluation of 5,001 steps, with the last step at the end, and the number of omitted steps', () => {
    const rules = Array.from({ length: 5_000 }, (_, number) => rule({ id: `rule-${number}`, protocol: 17 }));
    const explained = explain(policy([group(['10.0.0.1'], rules)]), { packet: packet() });
    expect(explained.walk.length).toBe(1_000);
    expect(explained.walk_omitted).toBe(4_001);
    expect(explained.walk.at(-1)).toEqual({
      source_group: null,
      rule: null,
      matched: true,
      why: 'no group decides, and the default is deny',
    });
  });

  test('`explain` returns the same decision and the same last step as the reference evaluator for random packets and DNS queries', () => {
    const seed = seedOf(4242);
    for (let number = 0; number < 100; number++) {
      const random = new Random(seed + number);
      const given = generatePolicy(random);
      const next = packetGenerator(random, given);
      for (let count = 0; count < 50; count++) {
        const tried = next();
        const hostname = random.chance(0.5) ? random.pick(['api.example.com', 'api1.example.com']) : undefined;
        const grants: Grants = { has: (pattern) => hostname !== undefined && matchesHostname(pattern, hostname) };
        const isHost = (one: number) => one >>> 24 !== 127 && one < 0xe000_0000;
        if (!isHost(tried.source) || tried.destination >>> 24 === 127) continue;
        const { verdict, place } = evaluate(given, tried, grants);
        const decidingRule = place.kind === 'rule' ? given.groups[place.group]?.rules[place.rule] : undefined;
        const decided = verdict === 'redirect' ? decidingRule?.action : verdict;
        const explained = explain(given, { packet: tried, hostname });
        expect(explained.decision, `seed ${seed + number}`).toBe(decided === 'audit' ? 'deny' : decided);
        const decider = place.kind === 'policy_default' ? undefined : given.groups[place.group];
        const last = {
          source_group: decider?.id ?? null,
          rule: place.kind === 'rule' ? (decider?.rules[place.rule]?.id ?? null) : null,
        };
        expect({ source_group: explained.source_group, rule: explained.rule }, `seed ${seed + number}`).toEqual(last);
        expect(
          explained.walk.filter((step) => step.matched),
          `seed ${seed + number}`,
        ).toEqual([{ ...last, matched: true, why: explained.walk.at(-1)?.why }]);
        const query = hostname ?? 'www.example.org';
        const lookup = evaluateLookup(given, tried.source, query).verdict;
        const answer = explain(given, { source: tried.source, query }).decision;
        expect(answer, `seed ${seed + number}`).toBe(lookup === 'audit' ? 'deny' : lookup);
      }
    }
  });
});
