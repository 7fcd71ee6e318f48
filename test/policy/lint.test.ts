import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ofFamily } from '#addresses/ip-address.js';
import type {
  PolicyConfig,
  RuleConfig,
  RuleMatchConfig,
  SourceGroupConfig,
} from '#contracts/policy/policy-document.js';
import type { Warning } from '#contracts/policy/policy-problem.js';
import { partsOf, policyOf } from '#policy/check/policy-parts.js';
import type { LintContext } from '#policy/check/warnings/group-lint.js';
import { lint } from '#policy/check/warnings/lint.js';
import { MAX_WARNINGS_OF_A_CODE } from '#policy/check/warnings/warning-list.js';
import { normalise } from '#test/policy/sample.js';

const running: LintContext = { dns: true, servicePlane: true };

function warningsOf(document: PolicyConfig, context: LintContext = running): Warning[] {
  const parts = partsOf(document, { form: 'singleton', mode: 'enforce', context });
  return lint(parts.groups, policyOf(parts, 'deny'), { ipv6: context.ipv6 });
}
function lines(document: PolicyConfig, context: LintContext = running): string[] {
  return warningsOf(document, context).map(({ pointer, code }) => `${code} ${pointer}`);
}
function group(cidr: string, rules: readonly RuleConfig[], more: Partial<SourceGroupConfig> = {}): SourceGroupConfig {
  return { id: cidr, mode: 'enforce', sources: { cidrs: [cidr] }, rules, ...more };
}
function rule(action: string, match: RuleMatchConfig, more: Partial<RuleConfig> = {}): RuleConfig {
  return { id: 'r', action, match, ...more };
}
/** Lints one group with `rules`. The returned pointers are relative to the rules of the group. */
function ruleLines(rules: readonly RuleConfig[], context: LintContext = running): string[] {
  return lines({ source_groups: [group('10.0.0.0/8', rules)] }, context).map((line) =>
    line.replace('/source_groups/0/rules', ''),
  );
}

describe('`lint`', () => {
  it('`lint` returns no warning for a policy without mistakes', () => {
    const rules = [
      rule('allow', { dst_cidrs: ['192.0.2.0/24'], proto: 'tcp', dst_ports: [443] }),
      rule('allow', {
        dns_hostname: '^api\\.example\\.com$',
        proto: 'tcp',
        dst_ports: [443],
        tls: { sni: ['a.test'] },
      }),
      rule('allow', { proto: 'tcp', dst_ports: [443], tls: { sni: ['example.com'] } }),
      rule('deny', { dst_cidrs: ['192.0.2.0/24'] }),
    ];
    expect(ruleLines(rules)).toEqual([]);
  });

  it.each<[readonly string[], boolean, Partial<PolicyConfig>, string[]]>([
    [['10.0.0.0/8'], true, {}, ['No group has an IPv6 source: policy.fallback denies all IPv6.']],
    [
      ['10.0.0.0/8'],
      true,
      { default_policy: 'allow' },
      ['No group has an IPv6 source: default_policy allows all IPv6.'],
    ],
    [['10.0.0.0/8', '2001:db8::/32'], true, {}, []],
    [['10.0.0.0/8'], false, {}, []],
  ])(
    '`lint` warns about a policy of sources %j without IPv6 sources only with IPv6 policies (%s, %j)',
    (cidrs, ipv6, more, found) => {
      const one = { id: 'a', sources: { cidrs: [...cidrs] }, rules: [rule('deny', { proto: 'tcp' })] };
      const warnings = warningsOf({ source_groups: [{ ...one, mode: 'enforce' }], ...more }, { ...running, ipv6 });
      expect(warnings.filter(({ code }) => code === 'no_ipv6_sources')).toEqual(
        found.map((message) => ({ pointer: '', code: 'no_ipv6_sources', message })),
      );
    },
  );

  it('`lint` does not warn about missing IPv6 sources if the policy has no groups', () => {
    expect(lines({ default_policy: 'deny' }, { ...running, ipv6: true })).toEqual([]);
  });

  it('`lint` warns about host bits in source prefixes and in destination prefixes', () => {
    expect(
      lines({ source_groups: [group('10.0.0.1/8', [rule('deny', { dst_cidrs: ['192.0.2.0/24', '192.0.2.1/24'] })])] }),
    ).toEqual(['host_bits /source_groups/0/sources/cidrs/0', 'host_bits /source_groups/0/rules/0/match/dst_cidrs/1']);
  });

  it.each<[RuleMatchConfig, RuleMatchConfig, boolean]>([
    [{}, {}, true],
    [{}, { dst_cidrs: ['10.0.0.0/8'], proto: 'tcp', dst_ports: [1] }, true],
    [{ dst_cidrs: ['0.0.0.0/0'] }, { proto: 'icmp' }, true],
    [{ dst_cidrs: ['0.0.0.0/0'] }, {}, true],
    [{ dst_cidrs: ['10.0.0.0/8'] }, { dst_cidrs: ['10.1.0.0/16'], dst_ips: ['10.0.0.1'] }, true],
    [{ dst_cidrs: ['10.0.0.0/8'] }, { dst_cidrs: ['10.1.0.0/16'], dst_ips: ['11.0.0.1'] }, false],
    [{ dst_cidrs: ['10.1.0.0/16'] }, { dst_cidrs: ['10.0.0.0/8'] }, false],
    [{ dst_cidrs: ['10.0.0.0/8'] }, {}, false],
    [{ proto: 'tcp' }, { proto: 6, dst_ports: [80] }, true],
    [{ proto: 'tcp' }, { proto: 'any' }, false],
    [{ proto: 'tcp' }, { proto: 'any', dst_ports: [80] }, false],
    [{ proto: 'tcp' }, { proto: 'udp' }, false],
    [{ proto: 'any', dst_ports: ['1-100'] }, { proto: 'udp', dst_ports: [7, '80-90'] }, true],
    [{ proto: 'any', dst_ports: ['1-100'] }, { proto: 'udp', dst_ports: [7, '80-101'] }, false],
    [{ proto: 'any', dst_ports: ['0-65535'] }, { proto: 'any' }, false],
    [{ proto: 'tcp', dst_ports: [443] }, { proto: 'tcp', dst_ports: [443], src_ports: [1] }, true],
    [{ proto: 'tcp', src_ports: [1] }, { proto: 'tcp', dst_ports: [443] }, false],
    [{ proto: 'any', icmp_types: [8] }, { proto: 'icmp', icmp_types: [8], icmp_codes: [0] }, true],
    [{ proto: 'icmp' }, { proto: 'icmp', icmp_types: [8] }, true],
    [{ proto: 'icmp' }, { proto: 'icmp', icmp_types: [13] }, false],
    [{ proto: 'tcp' }, { proto: 'tcp', dst_ports: [443], tls: {} }, true],
    [{ proto: 'tcp', tls: {}, dst_ports: [443] }, { proto: 'tcp', dst_ports: [443] }, false],
    [{ proto: 'tcp' }, { proto: 'any', dst_ports: [443], tls: {} }, true],
    [{ dns_hostname: 'a.test' }, { dns_hostname: 'A.test', proto: 'tcp' }, true],
    [{ dns_hostname: 'a.test' }, { dns_hostname: 'b.test' }, false],
    [{ proto: 'tcp' }, { dns_hostname: 'a.test', proto: 'tcp' }, true],
    [{ dst_cidrs: ['192.0.2.0/24'] }, { dns_hostname: 'a.test', dst_ips: ['192.0.2.1'] }, false],
  ])(
    '`lint` reports of two allow rules with the matches %j and %j the second as shadowed (expected: %s)',
    (first, second, shadowed) => {
      const found = ruleLines([rule('allow', first), rule('allow', second)]).filter((line) =>
        line.startsWith('shadowed'),
      );
      expect(found).toEqual(shadowed ? ['shadowed /1'] : []);
    },
  );

  it.each<[readonly string[], RuleMatchConfig, boolean]>([
    [['0.0.0.0/0'], {}, false],
    [['::/0'], {}, false],
    [['0.0.0.0/0', '::/0'], {}, true],
    [['0.0.0.0/0'], { dst_cidrs: ['10.0.0.0/8'] }, true],
    [['0.0.0.0/0'], { dst_cidrs: ['2001:db8::/32'] }, false],
    [['::/0'], { dst_cidrs: ['2001:db8::/32', '2001:db8::7/128'] }, true],
    [['::/0'], { dst_cidrs: ['2001:db8::/32', '10.0.0.0/8'] }, false],
  ])(
    '`lint` reports with IPv6 policies, of a rule for %j and a rule with the match %j, the second as shadowed (expected: %s)',
    (dst_cidrs, second, shadowed) => {
      const rules = [rule('deny', { dst_cidrs: [...dst_cidrs] }), rule('deny', second)];
      const found = ruleLines(rules, { ...running, ipv6: true }).filter((line) => line.startsWith('shadowed'));
      expect(found).toEqual(shadowed ? ['shadowed /1'] : []);
    },
  );

  it('`lint` does not report a rule as shadowed by an earlier rule for the same packets if only the later rule decides DNS queries', () => {
    const web = { proto: 'tcp', dst_ports: [443] };
    expect(ruleLines([rule('deny', web), rule('allow', { ...web, dns_hostname: 'a.test' })])).toEqual([]);
    expect(ruleLines([rule('deny', web), rule('allow', web)])).toEqual([]);
    expect(ruleLines([rule('deny', {}), rule('allow', { ...web, dns_hostname: 'a.test' })])).toEqual(['shadowed /1']);
  });

  it('`lint` reports no rule or group as shadowed or unreachable if a packet reaches the rule or group', () => {
    const cidr = fc.constantFrom('0.0.0.0/0', '0.0.0.0/1', '64.0.0.0/2', '128.0.0.0/1', '192.0.0.0/2');
    const ports = fc.array(fc.constantFrom<string | number>(1, 2, '1-2', '0-65535'), { maxLength: 2 });
    const bytes = fc.array(fc.integer({ min: 0, max: 2 }), { maxLength: 2 });
    const match = fc.oneof(
      fc.record({
        dst_cidrs: fc.array(cidr, { maxLength: 2 }),
        proto: fc.constantFrom<string | number>('any', 'tcp', 17, 47),
        dst_ports: ports,
        src_ports: ports,
      }),
      fc.record({
        dst_cidrs: fc.array(cidr, { maxLength: 2 }),
        proto: fc.constantFrom<string | number>('any', 'icmp'),
        icmp_types: bytes,
        icmp_codes: bytes,
      }),
    );
    const rules = fc.array(fc.record({ id: fc.constant('r'), action: fc.constantFrom('allow', 'deny'), match }), {
      maxLength: 5,
    });
    const groups = fc.array(
      fc.record(
        {
          id: fc.constant('g'),
          mode: fc.constant('enforce' as const),
          sources: fc.record({ cidrs: fc.array(cidr, { minLength: 1, maxLength: 2 }) }),
          rules,
          default_action: fc.constantFrom('allow', 'deny'),
        },
        { requiredKeys: ['id', 'mode', 'sources', 'rules'] },
      ),
      { maxLength: 4 },
    );
    const packets = [1, 65, 129, 193].flatMap((source) =>
      [1, 65, 129, 193].flatMap((destination) => [
        ...[6, 17].flatMap((protocol) =>
          [1, 2, 3].flatMap((low) => [1, 2, 3].map((high) => [source, destination, protocol, low, high])),
        ),
        ...[0, 1, 2, 3].flatMap((type) => [0, 1, 2, 3].map((code) => [source, destination, 1, type, code])),
        [source, destination, 47, 0, 0],
        [source, destination, 132, 9, 9],
      ]),
    ) as [number, number, number, number, number][];
    fc.assert(
      fc.property(groups, (source_groups) => {
        const document = { source_groups };
        const policy = normalise(document, { form: 'singleton', mode: 'enforce', fallback: 'deny' });
        const never = warningsOf(document).filter(({ code }) =>
          ['shadowed', 'never_matches', 'unreachable_group'].includes(code),
        );
        if (never.length === 0) return;
        const reached = new Set<string>();
        for (const [source, destination, protocol, low, high] of packets)
          reached.add(decides(policy, source, destination, protocol, low, high));
        for (const { pointer } of never)
          expect([...reached].filter((place) => `${place}/`.startsWith(`${pointer}/`))).toEqual([]);
      }),
      { numRuns: 300 },
    );
  });

  it('`lint` reports a rule as shadowed if an earlier group contains all sources of the rule and has an equal rule', () => {
    const web = rule('allow', { proto: 'tcp', dst_ports: [443] });
    const wide = group('10.0.0.0/8', [web]);
    expect(lines({ source_groups: [wide, group('10.1.0.0/16', [web])] })).toEqual([
      'shadowed /source_groups/1/rules/0',
    ]);
    expect(lines({ source_groups: [wide, group('11.0.0.0/16', [web])] })).toEqual([]);
    expect(lines({ source_groups: [group('10.1.0.0/16', [web]), wide] })).toEqual([]);
    const dynamic = {
      sources: { cidrs: ['10.1.0.0/16'], kubernetes: [{ integration: 'p', pod_selector: { namespace: 'shop' } }] },
    };
    expect(lines({ source_groups: [wide, group('x', [web], dynamic)] })).toEqual([]);
  });

  it('`lint` reports a group as unreachable if earlier groups together decide all packets from the sources of the group', () => {
    const closed = { default_action: 'deny' };
    const groups = [
      group('10.0.0.0/9', [], closed),
      group('10.128.0.0/9', [rule('allow', {})]),
      group('10.0.0.0/8', [rule('allow', {})]),
    ];
    expect(lines({ source_groups: groups })).toEqual(['unreachable_group /source_groups/2']);
    expect(lines({ source_groups: [groups[0] as SourceGroupConfig, group('10.0.0.0/8', [])] })).toEqual([]);
  });

  it('`lint` warns about an audit deny before an enforced deny if a selector of the first group may match sources of the second', () => {
    const dynamic = { sources: { kubernetes: [{ integration: 'p', pod_selector: { namespace: 'shop' } }] } };
    const groups = [
      group('x', [rule('deny', {}, { mode: 'audit' })], dynamic),
      group('10.0.0.0/8', [rule('deny', { proto: 'tcp' })]),
    ];
    expect(lines({ source_groups: groups })).toEqual(['audit_before_deny /source_groups/0/rules/0']);
  });

  it('`lint` reports a group with selectors as unreachable only if an earlier group decides packets from every source', () => {
    const dynamic = { sources: { kubernetes: [{ integration: 'p', pod_selector: { namespace: 'shop' } }] } };
    const behind = (cidr: string) =>
      lines({ source_groups: [group(cidr, [], { default_action: 'deny' }), group('x', [], dynamic)] });
    expect(behind('0.0.0.0/0')).toEqual(['unreachable_group /source_groups/1']);
    expect(behind('0.0.0.0/1')).toEqual([]);
  });

  it.each<[RuleMatchConfig, string[]]>([
    [{ proto: 47, dst_ports: [1] }, ['never_matches /0']],
    [{ proto: 'any', icmp_types: [8], tls: {} }, ['never_matches /0', 'tls_without_ports /0/match/tls']],
    [{ proto: 132, dst_ports: [1] }, []],
    [{ dns_hostname: 'api\\.test' }, ['unanchored_regex /0/match/dns_hostname']],
    [{ dns_hostname: '^api\\.test' }, ['unanchored_regex /0/match/dns_hostname']],
    [{ dns_hostname: '*.api.test' }, []],
    [{ tls: { sni: 'a' } }, ['unanchored_regex /0/match/tls/sni', 'tls_without_ports /0/match/tls']],
    [{ tls: { server_san: { regex: '^a$' } }, dst_ports: [443] }, []],
    [
      {
        dst_ports: [443],
        tls: {
          mode: 'intercept',
          tls13_uninspectable: 'allow',
          http: { request: { host: { regex: '^a' }, path: { regex: '^/a' }, headers: { regex: { 'x/y': 'a' } } } },
        },
      },
      [
        'no_effect /0/match/tls/tls13_uninspectable',
        'unanchored_regex /0/match/tls/http/request/host/regex',
        'unanchored_regex /0/match/tls/http/request/headers/regex/x~1y',
      ],
    ],
  ])('`lint` returns the warnings of one rule with the match %j', (match, expected) => {
    expect(ruleLines([rule('allow', match)])).toEqual(expected);
  });

  it.each<[RuleMatchConfig, string[]]>([
    [{ dst_ips: [] }, ['dst_ips']],
    [{ dst_cidrs: [], dst_ips: [] }, ['dst_cidrs', 'dst_ips']],
    [{ dst_cidrs: ['10.0.0.0/8'], dst_ips: [] }, []],
    [{ dst_ips: [], dns_hostname: 'a.test' }, []],
    [{ proto: 'tcp', dst_ports: [], src_ports: [], icmp_types: [], icmp_codes: [] }, ['src_ports', 'dst_ports']],
    [{ proto: 47, dst_ports: [] }, []],
    [{ proto: 'icmp', icmp_types: [], icmp_codes: [], dst_ports: [] }, []],
    [{ proto: 'icmp', icmp_types: [], icmp_codes: [0] }, ['icmp_types']],
    [{ icmp_types: [], icmp_codes: [8] }, ['icmp_types']],
    [{ icmp_types: [], dst_ports: [53] }, []],
    [{ dst_ports: [443], tls: { fingerprint_sha256: [], icmp_types: [] } as never }, ['tls/fingerprint_sha256']],
    [
      { dst_ports: [443], tls: { mode: 'intercept', http: { request: { methods: [], path: { prefix: ['/'] } } } } },
      ['tls/http/request/methods'],
    ],
    [{}, []],
  ])('`lint` warns for the match %j that these empty lists match everything: %j', (match, fields) => {
    for (const action of ['allow', 'deny']) {
      const found = ruleLines([rule(action, match)]).filter((line) => line.startsWith('empty_list'));
      expect(found).toEqual(fields.map((field) => `empty_list_matches_all /0/match/${field}`));
    }
  });

  it.each<[string, RuleMatchConfig, boolean]>([
    ['allow', { dns_hostname: 'a.test', dst_ports: [443] }, true],
    ['allow', { dns_hostname: '*.a.test', proto: 'tcp', dst_ports: [80, '400-500'] }, true],
    ['allow', { dns_hostname: 'a.test', dst_ports: [443], tls: { sni: ['a.test'] } }, false],
    ['allow', { dns_hostname: 'a.test', dst_ports: [443], proto: 'udp' }, false],
    ['allow', { dns_hostname: 'a.test', dst_ports: [8443] }, false],
    ['allow', { dns_hostname: 'a.test' }, false],
    ['allow', { dns_hostname: '*', dst_ports: [443] }, false],
    ['allow', { dst_ips: ['192.0.2.7'], dst_ports: [443] }, false],
    ['deny', { dns_hostname: 'a.test', dst_ports: [443] }, false],
  ])(
    '`lint` warns about a rule by hostname on port 443 without tls.sni: %s rule with the match %j (expected: %s)',
    (action, match, isFound) => {
      const found = ruleLines([rule(action, match)]).filter((line) => line.startsWith('name_without_sni'));
      expect(found).toEqual(isFound ? ['name_without_sni /0/match/dns_hostname'] : []);
    },
  );

  describe('QUIC beside a deny rule with TLS matchers', () => {
    const video = rule('deny', { proto: 'tcp', dst_ports: [443], tls: { sni: ['video.test'] } });
    const quic = rule('deny', { proto: 'udp', dst_ports: [443] });
    const policy = (rules: readonly RuleConfig[], more: Partial<PolicyConfig> = {}): PolicyConfig => ({
      default_policy: 'allow',
      source_groups: [group('10.0.0.0/8', rules)],
      ...more,
    });
    const found = (document: PolicyConfig) => warningsOf(document).filter(({ code }) => code === 'quic_not_covered');
    const exempt = group('10.0.0.0/16', [rule('allow', {})]);

    it('`lint` warns that QUIC passes a deny rule with TLS matchers if UDP to port 443 is allowed, and names a packet that passes', () => {
      expect(found(policy([video]))).toEqual([
        {
          pointer: '/source_groups/0/rules/0/match/tls',
          code: 'quic_not_covered',
          message:
            'QUIC passes beside this rule: the policy allows UDP to port 443, for example from 10.0.0.0 to 198.51.100.254. Deny UDP to port 443 too.',
        },
      ]);
      const inside = rule('deny', { dst_cidrs: ['192.0.2.0/24'], tls: { sni: 'a' } });
      expect(found(policy([inside], { default_policy: 'deny' }))).toEqual([]);
      expect(found(policy([inside, rule('allow', { dst_ports: [443] })], { default_policy: 'deny' }))).toHaveLength(1);
    });

    it.each<[string, PolicyConfig]>([
      ['a rule denies QUIC', policy([quic, video])],
      ['a rule under audit denies QUIC', policy([{ ...quic, mode: 'audit' }, video])],
      ['the default denies', policy([video], { default_policy: 'deny' })],
      ['the rule is for another port', policy([rule('deny', { dst_ports: [8443], tls: { sni: ['a.test'] } })])],
      ['the rule allows', policy([{ ...video, action: 'allow' }])],
      ['an earlier rule decides TLS too', policy([rule('allow', {}), video])],
      ['the tested source is exempt', policy([], { source_groups: [exempt, group('10.0.0.0/8', [video])] })],
      [
        'a later group denies QUIC',
        policy([], { source_groups: [group('10.0.0.0/8', [video]), group('0.0.0.0/0', [quic])] }),
      ],
    ])(
      '`lint` does not warn about QUIC beside a rule with TLS matchers if QUIC cannot bypass a deny by this rule: %s',
      (_, document) => {
        expect(found(document)).toEqual([]);
      },
    );
  });

  it('`lint` warns that a deny rule with a hostname is best effort', () => {
    expect(ruleLines([rule('deny', { dns_hostname: 'a.test' })])).toEqual(['deny_by_name /0/match/dns_hostname']);
  });

  it('`lint` warns about a hostname rule if DNS is off, and about a TLS rule if the service plane is off', () => {
    const rules = [rule('allow', { dns_hostname: 'a.test' }), rule('allow', { dst_ports: [443], tls: {} })];
    expect(ruleLines(rules, { ...running, dns: false })).toEqual(['dns_off /0/match/dns_hostname']);
    expect(ruleLines(rules, { ...running, servicePlane: false })).toEqual(['service_plane_off /1/match/tls']);
  });

  it('`lint` warns about a TLS rule that matches only connections of the node itself, if the node polices its own connections', () => {
    const own = { ...running, ownAddresses: new Set([0x0a00_0001, 0xc000_0201]) };
    const inspected: RuleMatchConfig = { dst_ports: [443], tls: { sni: ['a.test'] } };
    const said = 'node_uninspected /source_groups/0/rules/0/match/tls';
    const of = (cidr: string, match: RuleMatchConfig, context: LintContext = own): string[] =>
      lines({ source_groups: [group(cidr, [rule('allow', match)])] }, context);
    expect(of('10.0.0.1/32', inspected)).toEqual([said]);
    expect(of('10.0.0.0/24', { ...inspected, dst_ips: ['192.0.2.1', '10.0.0.1'] })).toEqual([said]);
    expect(of('10.0.0.0/31', inspected)).toEqual([]);
    expect(of('10.0.0.2/32', { ...inspected, dst_ips: ['192.0.2.1', '192.0.2.2'] })).toEqual([]);
    expect(of('10.0.0.1/32', { dst_ports: [443] })).toEqual([]);
    expect(of('10.0.0.1/32', inspected, running)).toEqual([]);
    const sources = {
      cidrs: ['10.0.0.1/32'],
      kubernetes: [{ integration: 'a', node_selector: { match_labels: { pool: 'a' } } }],
    };
    expect(lines({ source_groups: [group('x', [rule('allow', inspected)], { sources })] }, own)).toEqual([]);
  });

  it.each<[string, RuleConfig[], Partial<SourceGroupConfig>, string[]]>([
    [
      'the rules overlap',
      [rule('deny', { dst_ports: [80] }, { mode: 'audit' }), rule('deny', { dst_cidrs: ['192.0.2.0/24'] })],
      {},
      ['audit_before_deny /0'],
    ],
    [
      'the rules are disjoint',
      [rule('deny', { dst_ports: [80] }, { mode: 'audit' }), rule('deny', { dst_ports: [81] })],
      {},
      [],
    ],
    [
      'the deny in audit mode is shadowed by an earlier rule',
      [rule('deny', { dst_ports: [80, 81] }), rule('deny', { dst_ports: [80], src_ports: [9] }, { mode: 'audit' })],
      {},
      ['shadowed /1'],
    ],
    [
      'both denies are in audit mode',
      [rule('deny', { dst_ports: [80] }), rule('deny', { dst_ports: ['80-81'] })],
      { mode: 'audit' },
      ['audit_falls_through /source_groups/0'],
    ],
    [
      'the enforced deny is the default of its group',
      [rule('deny', { dst_ports: [80] }, { mode: 'audit' })],
      { default_action: 'deny' },
      ['audit_before_deny /0'],
    ],
    [
      'an allow rule for all packets is between the two denies',
      [rule('deny', { dst_ports: [80] }, { mode: 'audit' }), rule('allow', {})],
      { default_action: 'deny' },
      [],
    ],
  ])('`lint` warns if an enforced deny follows an audit deny of the same packet: %s', (_, rules, more, expected) => {
    const found = lines({ source_groups: [group('10.0.0.0/8', rules, more)] });
    expect(found.map((line) => line.replace('/source_groups/0/rules', ''))).toEqual(expected);
  });

  it('`lint` warns about a deny in audit mode before an enforced deny in a later group only if both groups have common sources', () => {
    const first = group('10.0.0.0/8', [rule('deny', { dst_ports: [80] }, { mode: 'audit' })]);
    const second = (cidr: string) => group(cidr, [rule('deny', { dst_ports: ['1-99'] })]);
    expect(lines({ source_groups: [first, second('10.1.0.0/16')] })).toEqual([
      'audit_before_deny /source_groups/0/rules/0',
    ]);
    expect(lines({ source_groups: [first, second('11.1.0.0/16')] })).toEqual([]);
  });

  it('`lint` returns 100 warnings of each code, and one more warning with the number of omitted warnings', () => {
    const rules = Array.from({ length: MAX_WARNINGS_OF_A_CODE + 5 }, () =>
      rule('deny', { dst_cidrs: ['10.0.0.1/8'], dst_ports: [80] }),
    );
    const policy = { source_groups: [group('10.0.0.0/8', rules)] };
    const warnings = warningsOf(policy);
    expect(warnings.filter(({ code }) => code === 'host_bits').length).toBe(MAX_WARNINGS_OF_A_CODE + 1);
    expect(warnings.filter(({ pointer }) => pointer === '')).toEqual([
      { pointer: '', code: 'host_bits', message: 'There are 5 more warnings of this kind.' },
      { pointer: '', code: 'shadowed', message: 'There are 4 more warnings of this kind.' },
    ]);
  });
});

/**
 * Returns the pointer of the rule or default that decides a packet. The function shares no code with the
 * tested linter, because the test could not find a fault in shared code. `low` and `high` are source and
 * destination port, or ICMP type and code.
 */
function decides(
  policy: ReturnType<typeof normalise>,
  source: number,
  destination: number,
  protocol: number,
  low: number,
  high: number,
): string {
  const inside = (octet: number, { address, length }: { address: number; length: number }) => {
    const size = 2 ** (32 - length);
    return octet * 2 ** 24 >= address && octet * 2 ** 24 < address + size;
  };
  const some = (ranges: readonly { low: number; high: number }[], port: number) =>
    ranges.length === 0 || ranges.some((range) => range.low <= port && port <= range.high);
  for (const { pointer, sources, rules, defaultAction } of policy.groups) {
    if (!ofFamily(sources, 'ipv4').some((prefix) => inside(source, prefix))) continue;
    for (const one of rules) {
      if (
        one.destinations.length > 0 &&
        !ofFamily(one.destinations, 'ipv4').some((prefix) => inside(destination, prefix))
      )
        continue;
      if (one.protocol !== 'any' && one.protocol !== protocol) continue;
      const ported = one.sourcePorts.length + one.destinationPorts.length > 0;
      if (ported && ![6, 17, 33, 132, 136].includes(protocol)) continue;
      if (ported && !(some(one.sourcePorts, low) && some(one.destinationPorts, high))) continue;
      const typed = one.icmpTypes.length + one.icmpCodes.length > 0;
      if (typed && protocol !== 1) continue;
      if (one.icmpTypes.length > 0 && !one.icmpTypes.includes(low)) continue;
      if (one.icmpCodes.length > 0 && !one.icmpCodes.includes(high)) continue;
      return one.pointer;
    }
    if (defaultAction !== undefined) return `${pointer}/default_action`;
  }
  return 'default';
}

describe('`lint` of a hostname that no DNS name can match', () => {
  it.each([
    ['foo bar', 'no name has a blank'],
    ['^foo bar$', 'no name has a blank'],
    [' example.com', 'no name has a blank'],
    ['example.com ', 'no name has a blank'],
    ['^example\\.com\\s$', 'no name has a blank'],
    ['a.example.com, b.example.com', 'no name has the character ","'],
    ['https://example.com', 'no name has the character ":"'],
    ['example.com/path', 'no name has the character "/"'],
    ['user@example.com', 'no name has the character "@"'],
    ['[a-z]+ example\\.com', 'no name has a blank'],
    ['^.*,example\\.com$', 'no name has the character ","'],
    ['^b\u00fccher\\.example$', 'no name has the character "\u00fc"'],
    ['^a\\.\\.b$', 'no name has an empty label'],
    ['^\\.example\\.com$', 'no name begins with a dot'],
    [`^${'a'.repeat(64)}\\.com$`, 'a label has at most 63 characters'],
    [`^${'abcdefg\\.'.repeat(32)}com$`, 'a name has at most 253 characters'],
  ])('`lint` warns about the hostname %j, and gives the reason: %s', (dns_hostname, fault) => {
    const document = {
      source_groups: [group('10.0.0.0/8', [rule('allow', { dns_hostname, tls: { sni: dns_hostname } })])],
    };
    expect(warningsOf(document).filter(({ code }) => code === 'hostname_never_matches')).toEqual(
      ['dns_hostname', 'tls/sni'].map((matcher) => ({
        pointer: `/source_groups/0/rules/0/match/${matcher}`,
        code: 'hostname_never_matches',
        message: `This hostname can never match: ${fault}.`,
      })),
    );
  });

  it.each([
    'example.com',
    '*.example.com',
    '*',
    '^api\\.example\\.com$',
    '^(foo bar|api)\\.example\\.com$',
    '^foo ?bar$',
    '^foo *bar$',
    '^foo {0,1}bar$',
    '^foo[ -]bar$',
    '\\.example\\.com$',
    '^[a-z]+\\.example\\.com$',
    '^\\w+\\.example\\.com$',
    '^a.\\.b$',
    `^${'a'.repeat(63)}\\.${'b'.repeat(63)}$`,
    `${'a'.repeat(40)}.${'b'.repeat(40)}$`,
  ])('`lint` returns no hostname_never_matches warning for the hostname %j', (dns_hostname) => {
    expect(ruleLines([rule('allow', { dns_hostname })]).filter((line) => line.startsWith('hostname_never'))).toEqual(
      [],
    );
  });
});

describe('`lint` of an allow rule with a TLS block before a wider allow', () => {
  const sni = rule('allow', { proto: 'tcp', dst_ports: [443], tls: { sni: ['example.com'] } });
  const http = rule('allow', {
    proto: 'tcp',
    dst_ports: [443],
    tls: { mode: 'intercept', http: { request: { methods: ['GET'] } } },
  });
  const all = rule('allow', {});
  const https = rule('allow', { proto: 'tcp', dst_ports: [443] });
  const widened = (rules: readonly RuleConfig[], more: Partial<SourceGroupConfig> = {}) =>
    warningsOf({ source_groups: [group('10.0.0.0/8', rules, more)] })
      .filter(({ code }) => code === 'inspection_widened')
      .map(({ pointer, message }) => `${pointer}: ${message}`);
  const at = (by: string) =>
    `/source_groups/0/rules/0/match/tls: These matchers exclude nothing: ${by} allows every connection that they do not match.`;

  it.each<[readonly RuleConfig[], string]>([
    [[sni, https], '/source_groups/0/rules/1'],
    [[sni, all], '/source_groups/0/rules/1'],
    [[http, https], '/source_groups/0/rules/1'],
    [[sni, rule('deny', { proto: 'udp' }), all], '/source_groups/0/rules/2'],
    [[sni, rule('allow', { proto: 'tcp', dst_ports: ['1-1000'] })], '/source_groups/0/rules/1'],
  ])(
    '`lint` warns about an allow rule with a TLS block before a wider allow, and names the wider allow rule, for the rules %j',
    (rules, by) => {
      expect(widened(rules)).toEqual([at(by)]);
    },
  );

  it('`lint` warns about an allow rule with a TLS block if the default action of the group is allow', () => {
    expect(widened([sni], { default_action: 'allow' })).toEqual([at('the default of /source_groups/0')]);
    expect(widened([sni], { default_action: 'deny' })).toEqual([]);
  });

  it.each<[readonly RuleConfig[]]>([
    [[sni]],
    [[https, sni]],
    [[sni, rule('deny', { proto: 'tcp', dst_ports: [443] }), https]],
    [[sni, rule('deny', { proto: 'tcp', dst_ports: [443], tls: { sni: ['b.test'] } }), https]],
    [[sni, rule('allow', { proto: 'udp', dst_ports: [443] })]],
    [[sni, rule('allow', { proto: 'tcp', dst_ports: [443], dst_cidrs: ['192.0.2.0/24'] })]],
    [[rule('deny', { proto: 'tcp', dst_ports: [443], tls: { sni: ['b.test'] } }), https]],
    [[rule('allow', { proto: 'tcp', dst_ports: [443], tls: { server_cn: ['b.test'] } }), https]],
    [[sni, { ...sni, id: 's' }]],
  ])(
    '`lint` does not warn of a wider allow after an allow rule with TLS attributes (inspection_widened) for the rules %j',
    (rules) => {
      expect(widened(rules)).toEqual([]);
    },
  );
});

describe('`lint` of a group in audit mode without a default action', () => {
  const web = rule('allow', { proto: 'tcp', dst_ports: [80] });
  const audited = (more: Partial<SourceGroupConfig> = {}) => group('10.0.0.0/8', [web], { mode: 'audit', ...more });
  const found = (document: PolicyConfig) =>
    warningsOf(document)
      .filter(({ code }) => code === 'audit_falls_through')
      .map(({ pointer, message }) => `${pointer} ${/reach (.*), which/.exec(message)?.[1]}`);
  const last = { id: 'last', mode: 'enforce', sources: { cidrs: ['0.0.0.0/0'] } } as const;

  it.each<[string, PolicyConfig, string]>([
    ['default_policy', { default_policy: 'deny', source_groups: [audited()] }, 'default_policy'],
    ['policy.fallback', { source_groups: [audited()] }, 'policy.fallback'],
    [
      'the default of a later group',
      { default_policy: 'allow', source_groups: [audited(), { ...last, default_action: 'deny' }] },
      'the default of /source_groups/1',
    ],
    [
      'the default of a later group that has some of the same sources',
      {
        default_policy: 'allow',
        source_groups: [audited(), { ...last, sources: { ips: ['10.0.0.7'] }, default_action: 'deny' }],
      },
      'the default of /source_groups/1',
    ],
    [
      'default_policy, after a later group without a default action',
      { default_policy: 'deny', source_groups: [audited(), last] },
      'default_policy',
    ],
  ])(
    '`lint` warns that packets that match no rule of a group in audit mode reach an enforced deny (of: %s)',
    (_, document, to) => {
      expect(found(document)).toEqual([`/source_groups/0 ${to}`]);
    },
  );

  it.each<[string, PolicyConfig]>([
    ['a group with a default action', { default_policy: 'deny', source_groups: [audited({ default_action: 'deny' })] }],
    ['a policy with default_policy allow', { default_policy: 'allow', source_groups: [audited()] }],
    ['an enforced group', { default_policy: 'deny', source_groups: [audited({ mode: 'enforce' })] }],
    [
      'a rule that matches everything',
      { default_policy: 'deny', source_groups: [audited({ rules: [rule('deny', {})] })] },
    ],
    [
      'a later group that allows the rest',
      { default_policy: 'deny', source_groups: [audited(), { ...last, default_action: 'allow' }] },
    ],
    [
      'a later group in audit mode',
      { default_policy: 'deny', source_groups: [audited(), { ...last, mode: 'audit', default_action: 'deny' }] },
    ],
  ])(
    '`lint` does not warn that packets of a group in audit mode reach an enforced deny (audit_falls_through) for %s',
    (_, document) => {
      expect(found(document)).toEqual([]);
    },
  );
});
