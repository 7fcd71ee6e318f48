import { describe, expect, it } from 'vitest';
import type { PolicyConfig, RuleMatchConfig, TlsMatchConfig } from '#contracts/policy/policy-document.js';
import { normalise } from '#test/policy/sample.js';

const options = { form: 'singleton', mode: 'enforce', fallback: 'deny' } as const;
const sources = { ips: ['10.0.0.1'] };

function ruleOf(match: RuleMatchConfig, ipv6 = false) {
  const document = {
    source_groups: [{ id: 'g', mode: 'audit' as const, sources, rules: [{ id: 'r', action: 'DENY', match }] }],
  };
  return normalise(document, { ...options, ipv6 }).groups[0]?.rules[0];
}
function tlsOf(tls: TlsMatchConfig) {
  return ruleOf({ tls })?.tls;
}
const plain = {
  id: 'r',
  pointer: '/rules/0',
  action: 'deny',
  mode: 'audit',
  destinations: [],
  hostname: undefined,
  protocol: 'any',
  sourcePorts: [],
  destinationPorts: [],
  icmpTypes: [],
  icmpCodes: [],
  tls: undefined,
};

describe('`normalise` of a policy document', () => {
  it('`normalise` converts IPv6 addresses and networks, and adds the default types of the protocol icmpv6', () => {
    expect(ruleOf({ dst_cidrs: ['2001:DB8::9/32', '10.0.0.0/8'], dst_ips: ['::1'], proto: 'icmpv6' })).toEqual({
      ...plain,
      destinations: [
        { address: 0x2001_0db8n << 96n, length: 32 },
        { address: 0x0a00_0000, length: 8 },
        { address: 1n, length: 128 },
      ],
      protocol: 58,
      icmpTypes: [1, 2, 3, 4, 128, 129],
    });
    expect(ruleOf({ proto: 58 })?.icmpTypes).toEqual([]);
  });

  it.each<[readonly string[], { ipv6: boolean }, number]>([
    [['0.0.0.0/0'], { ipv6: false }, 0],
    [['10.0.0.0/8', '0.0.0.0/0'], { ipv6: false }, 0],
    [['0.0.0.0/0'], { ipv6: true }, 1],
    [['::/0'], { ipv6: true }, 1],
    [['0.0.0.0/0', '::/0'], { ipv6: true }, 0],
    [['0.0.0.0/1', '128.0.0.0/1'], { ipv6: false }, 2],
  ])(
    '`normalise` empties a list of destinations (%j, %j) only if it has every address of the policy',
    (dst_cidrs, of, count) => {
      expect(ruleOf({ dst_cidrs: [...dst_cidrs] }, of.ipv6)?.destinations).toHaveLength(count);
    },
  );

  it('`normalise` sets the default of each field that a rule omits', () => {
    expect(ruleOf({})).toEqual(plain);
  });

  it('`normalise` converts addresses, ports and protocol names into numbers', () => {
    const match: RuleMatchConfig = {
      dst_cidrs: ['192.0.2.9/24', '198.51.100.1'],
      dst_ips: ['255.255.255.255'],
      dns_hostname: '*.Example.com',
      proto: 'Tcp',
      src_ports: ['1024-65535'],
      dst_ports: [443, '80', '8000-8100'],
    };
    expect(ruleOf(match)).toEqual({
      ...plain,
      destinations: [
        { address: 0xc0000200, length: 24 },
        { address: 0xc6336401, length: 32 },
        { address: 0xffffffff, length: 32 },
      ],
      hostname: { kind: 'suffix', labels: ['example', 'com'], text: '*.example.com' },
      protocol: 6,
      sourcePorts: [{ low: 1024, high: 65535 }],
      destinationPorts: [
        { low: 443, high: 443 },
        { low: 80, high: 80 },
        { low: 8000, high: 8100 },
      ],
    });
  });

  it.each<[RuleMatchConfig, number | 'any', readonly number[], readonly number[]]>([
    [{ proto: 'icmp' }, 1, [0, 3, 8, 11, 12], []],
    [{ proto: 1 }, 1, [0, 3, 8, 11, 12], []],
    [{ proto: 'ICMP', icmp_types: [], icmp_codes: [] }, 1, [0, 3, 8, 11, 12], []],
    [{ proto: 'icmp', icmp_types: [13] }, 1, [13], []],
    [{ proto: 'icmp', icmp_codes: [0] }, 1, [], [0]],
    [{ proto: 'any' }, 'any', [], []],
    [{ proto: 'any', icmp_types: [8], icmp_codes: [0, 1] }, 'any', [8], [0, 1]],
    [{ proto: 47 }, 47, [], []],
  ])(
    '`normalise` adds common ICMP types to the rule match %j only for proto icmp without types and codes',
    (match, protocol, types, codes) => {
      expect(ruleOf(match)).toEqual({ ...plain, protocol, icmpTypes: types, icmpCodes: codes });
    },
  );

  it('`normalise` sorts groups and rules by priority, uses the index as the default priority, and keeps the order of equal priorities', () => {
    const rules = ([['a', 2], ['b'], ['c'], ['d', 0], ['e', 1]] as const).map(([id, priority]) => ({
      id,
      action: 'allow',
      match: {},
      ...(priority === undefined ? {} : { priority }),
    }));
    const groups = ([['x'], ['y', 9], ['z'], ['w', 0]] as const).map(([id, priority]) => ({
      id,
      mode: 'enforce' as const,
      sources,
      rules: id === 'z' ? rules : [],
      ...(priority === undefined ? {} : { priority }),
    }));
    const policy = normalise({ source_groups: groups }, options);
    expect(policy.groups.map(({ id, pointer }) => [id, pointer])).toEqual([
      ['x', '/source_groups/0'],
      ['w', '/source_groups/3'],
      ['z', '/source_groups/2'],
      ['y', '/source_groups/1'],
    ]);
    expect(policy.groups[2]?.rules.map(({ id, pointer }) => [id, pointer])).toEqual([
      ['d', '/rules/3'],
      ['b', '/rules/1'],
      ['e', '/rules/4'],
      ['a', '/rules/0'],
      ['c', '/rules/2'],
    ]);
  });

  it('`normalise` takes a missing mode of a rule from the group, and a missing mode of a group or default from the envelope or record', () => {
    const document = (mode?: 'audit'): PolicyConfig => ({
      default_policy: 'Allow',
      source_groups: [
        {
          id: 'g',
          ...(mode === undefined ? {} : { mode }),
          sources: { cidrs: ['10.0.0.0/8'], kubernetes: [{ integration: 'prod', pod_selector: {} }] },
          rules: [
            { id: 'a', action: 'deny', match: {} },
            { id: 'b', action: 'deny', mode: 'enforce', match: {} },
          ],
          default_action: 'DENY',
        },
      ],
    });
    const modes = ({ groups, default: last }: ReturnType<typeof normalise>) => [
      groups.map(({ mode, defaultAction, selectors, rules }) => [
        mode,
        defaultAction,
        selectors.length,
        rules.map((rule) => rule.mode),
      ]),
      last,
    ];
    expect(modes(normalise(document('audit'), options))).toEqual([
      [['audit', 'deny', 1, ['audit', 'enforce']]],
      { action: 'allow', mode: 'enforce', from: 'default_policy' },
    ]);
    expect(modes(normalise(document(), { ...options, form: 'envelope', mode: 'audit' }))).toEqual([
      [['audit', 'deny', 1, ['audit', 'enforce']]],
      { action: 'allow', mode: 'audit', from: 'default_policy' },
    ]);
    expect(modes(normalise(document(), { ...options, form: 'envelope', mode: 'disabled' }))).toEqual([
      [['enforce', 'deny', 1, ['enforce', 'enforce']]],
      { action: 'allow', mode: 'enforce', from: 'default_policy' },
    ]);
    expect(normalise({}, { ...options, mode: 'audit', fallback: 'allow' })).toEqual({
      groups: [],
      default: { action: 'allow', mode: 'audit', from: 'fallback' },
    });
  });

  it('`normalise` sets the default mode and the default tls13_uninspectable of a TLS block', () => {
    expect(tlsOf({})).toEqual({ mode: 'metadata', tls13_uninspectable: 'deny' });
    expect(tlsOf({ tls13_uninspectable: 'ALLOW' })).toEqual({ mode: 'metadata', tls13_uninspectable: 'allow' });
  });

  it('`normalise` changes hostnames, header names and fingerprints to lower case, and methods to upper case', () => {
    const digest = Array(32).fill('AB').join(':');
    expect(
      tlsOf({
        sni: ['API.example.com.'],
        ech: 'absent',
        server_san: { exact: ['B'], regex: 'B' },
        server_cn: ['CN', 'Common Name'],
        fingerprint_sha256: [digest],
      }),
    ).toEqual({
      mode: 'metadata',
      sni: ['api.example.com'],
      ech: 'absent',
      server_san: { exact: ['b'], regex: 'B' },
      server_cn: ['cn', 'Common Name'],
      fingerprint_sha256: ['ab'.repeat(32)],
      tls13_uninspectable: 'deny',
    });
    const request = {
      host: { exact: ['Example.COM'] },
      methods: ['get', 'Post'],
      path: { prefix: ['/V1'] },
      query: { keys_present: ['A'], key_values_exact: { constructor: ['X'] } },
      headers: { require_present: ['X-A'], exact: { 'X-B': ['V'] }, regex: { 'X-C': 'V' } },
    };
    const tls = tlsOf({ mode: 'intercept', http: { request, response: { headers: { deny_present: ['X-D'] } } } });
    expect(tls).toEqual({
      mode: 'intercept',
      tls13_uninspectable: 'deny',
      http: {
        request: {
          host: { exact: ['example.com'] },
          methods: ['GET', 'POST'],
          path: { prefix: ['/V1'] },
          query: { keys_present: ['A'], key_values_exact: { constructor: ['X'] } },
          headers: { require_present: ['x-a'], exact: { 'x-b': ['V'] }, regex: { 'x-c': 'V' } },
        },
        response: { headers: { deny_present: ['x-d'] } },
      },
    });
    expect(Object.getPrototypeOf(tls?.http?.request?.query?.key_values_exact)).toBeNull();
  });
});
