import { describe, expect, test } from 'vitest';
import type { HostnamePattern, Policy, Rule } from '#contracts/policy/policy-model.js';
import { evaluateLookup } from '#policy/evaluate/lookup/evaluate-lookup.js';
import { address, group, policy, rule } from './sample.js';

const API: HostnamePattern = { kind: 'exact', labels: ['api', 'example', 'com'], text: 'api.example.com' };
const OTHER: HostnamePattern = { kind: 'exact', labels: ['other', 'example'], text: 'other.example' };

function lookup(given: Policy) {
  return evaluateLookup(given, address('10.0.0.1'), 'api.example.com');
}

function decides(given: Rule): boolean {
  return (
    lookup(policy([group(['10.0.0.0/8'], [given])], { action: given.action === 'allow' ? 'deny' : 'allow' })).place
      .kind === 'rule'
  );
}

const byRule = (group: number, rule: number) => ({ kind: 'rule', group, rule });

describe('`evaluateLookup` (the decision on a DNS query)', () => {
  test('`evaluateLookup` returns for a DNS query the verdict of the first rule that applies to the source and to the queried name', () => {
    const given = policy([
      group(['10.0.0.2'], [rule({ action: 'deny' })]),
      group(
        ['10.0.0.0/8'],
        [rule({ hostname: OTHER, action: 'deny' }), rule({ hostname: API, protocol: 6, ports: ['443'] })],
      ),
    ]);
    expect(lookup(given)).toEqual({ rank: 2, place: byRule(1, 1), verdict: 'allow', audited: false });
  });

  test('`evaluateLookup` returns the default action of a group if no rule of the group decides the DNS query', () => {
    const given = policy([group(['10.0.0.1'], [rule({ hostname: OTHER })], { defaultAction: 'deny', mode: 'audit' })]);
    expect(lookup(given)).toEqual({
      rank: 1,
      place: { kind: 'group_default', group: 0 },
      verdict: 'audit',
      audited: true,
    });
  });

  test('`evaluateLookup` returns the default of the policy if no group decides the DNS query', () => {
    expect(lookup(policy([group(['10.0.0.2'], [rule()])]))).toEqual({
      rank: 1,
      place: { kind: 'policy_default' },
      verdict: 'deny',
      audited: false,
    });
  });

  test('`evaluateLookup` returns for a DNS query allow, not redirect, if the query matches an allow rule with TLS attributes', () => {
    const given = policy([group(['10.0.0.1'], [rule({ hostname: API, tls: {}, mode: 'audit' })])]);
    expect(lookup(given)).toEqual({ rank: 0, place: byRule(0, 0), verdict: 'allow', audited: false });
  });

  test('`evaluateLookup` returns for a DNS query the verdict audit if the query matches a deny rule in audit mode', () => {
    const given = policy([group(['10.0.0.1'], [rule({ hostname: API, action: 'deny', mode: 'audit' })])]);
    expect(lookup(given).verdict).toBe('audit');
  });
});

describe('`evaluateLookup` of api.example.com with one allow rule', () => {
  test.each<[string, Rule, boolean]>([
    ['with a hostname that matches', rule({ hostname: API }), true],
    ['with a hostname that does not match', rule({ hostname: OTHER }), false],
    ['with a hostname, for ICMP', rule({ hostname: API, protocol: 1, icmpTypes: [8] }), true],
    ['with a hostname and destinations', rule({ hostname: API, to: ['192.0.2.0/24'] }), true],
    ['with destinations', rule({ to: ['192.0.2.0/24'] }), false],
    ['with 0.0.0.0/0', rule({ to: ['0.0.0.0/0'] }), true],
    ['with ::/0', rule({ to: ['::/0'] }), true],
    ['with an IPv6 network', rule({ to: ['2001:db8::/32'] }), false],
    ['with 0.0.0.0/0 and an IPv6 network', rule({ to: ['2001:db8::/32', '0.0.0.0/0'] }), true],
    ['with a hostname and IPv6 destinations', rule({ hostname: API, to: ['2001:db8::/32'] }), true],
    ['with a hostname and destinations of both families', rule({ hostname: API, to: ['::/0', '192.0.2.0/24'] }), true],
    ['for anything', rule(), true],
    ['for TCP ports', rule({ protocol: 6, ports: ['443'] }), true],
    ['for any protocol, with ports', rule({ ports: ['443'] }), true],
    ['for UDP', rule({ protocol: 17 }), true],
    ['for UDP with port 53', rule({ protocol: 17, ports: ['50-60'] }), true],
    ['for UDP without port 53', rule({ protocol: 17, ports: ['52', '54-60'] }), false],
    ['for ICMP', rule({ protocol: 1 }), false],
    ['for any protocol, with ICMP types', rule({ icmpTypes: [8] }), false],
    ['for SCTP', rule({ protocol: 132 }), false],
  ])('`evaluateLookup` returns whether an allow rule (%s) decides the DNS query (row %#)', (_name, given, wanted) => {
    expect(decides(given)).toBe(wanted);
  });
});

describe('`evaluateLookup` of api.example.com with one deny rule', () => {
  test.each<[string, Rule, boolean]>([
    ['for anything', rule(), true],
    ['with 0.0.0.0/0', rule({ to: ['0.0.0.0/0'] }), false],
    ['with ::/0', rule({ to: ['::/0'] }), false],
    ['with a hostname and ::/0', rule({ hostname: API, to: ['::/0'] }), false],
    ['with a hostname that matches', rule({ hostname: API }), true],
    ['with a hostname that does not match', rule({ hostname: OTHER }), false],
    ['with a hostname and ports', rule({ hostname: API, ports: ['80'] }), false],
    ['with a hostname and destinations', rule({ hostname: API, to: ['192.0.2.0/24'] }), false],
    ['with destinations', rule({ to: ['192.0.2.0/24'] }), false],
    ['for a protocol', rule({ protocol: 6 }), false],
    ['with source ports', rule({ from: ['1'] }), false],
    ['with ICMP codes', rule({ icmpCodes: [1] }), false],
    ['with a TLS block', rule({ tls: {} }), false],
  ])('`evaluateLookup` returns whether a deny rule (%s) decides the DNS query (row %#)', (_name, given, wanted) => {
    expect(decides({ ...given, action: 'deny' })).toBe(wanted);
  });
});
