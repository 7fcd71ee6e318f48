import { describe, expect, test } from 'vitest';
import { NO_SELECTORS } from '#contracts/kubernetes/membership.js';
import type { TlsMatchConfig } from '#contracts/policy/policy-document.js';
import { noGrants, type Policy, type Rule } from '#contracts/policy/policy-model.js';
import type { RequestFacts } from '#contracts/service-plane/http-facts.js';
import type {
  CertificateFacts,
  ClientHello,
  HelloFacts,
  SeenCertificate,
  TlsFacts,
} from '#contracts/service-plane/tls-facts.js';
import { compile } from '#policy/compile/compile.js';
import {
  decideConnection,
  decideRequest,
  grantsOf,
  type Step,
  StepFinder,
} from '#policy/evaluate/connection/connection-steps.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { normaliseTls } from '#policy/model/tls.js';
import { Random, seedOf } from '#test/seed.js';
import { generateGrants, generatePolicy, packetGenerator } from './generate.js';
import { group, policy, rule, packet as sample } from './sample.js';

const finderOf = (of: Policy, withPolicy = true): StepFinder =>
  new StepFinder({
    generation: 1,
    scope: NO_SELECTORS,
    ...(withPolicy ? { program: null, policy: of } : { program: compile(of), policy: null }),
  });
const FLOW = sample();
const hello = (sni: string | null, more: Partial<ClientHello> = {}): HelloFacts => ({
  kind: 'hello',
  sni,
  ech: false,
  alpn: [],
  offersTls13: true,
  ...more,
});
const facts = (said: HelloFacts, certificate: CertificateFacts = { kind: 'unasked' }): TlsFacts => ({
  hello: said,
  certificate,
});
const CERTIFICATE: SeenCertificate = {
  kind: 'seen',
  subject: 'CN=x',
  commonNames: ['x'],
  dnsNames: [],
  fingerprint: 'ab'.repeat(32),
  isTrusted: () => true,
};
const NO_TLS: HelloFacts = { kind: 'unreadable', fault: 'not_tls' };
const tlsRule = (id: string, tls: TlsMatchConfig, more: Partial<Rule> = {}): Rule =>
  rule({ id, protocol: 6, tls: normaliseTls(tls), ...more });
const stepsOf = (...rules: readonly Rule[]): readonly Step[] =>
  finderOf(policy([group(['0.0.0.0/0'], rules)])).stepsOf(FLOW, noGrants);
const verdictOf = (steps: readonly Step[], of: TlsFacts): string => {
  const decision = decideConnection(steps, of);
  if (decision.kind !== 'decided') return decision.kind;
  const { decider } = decision.step;
  return `${decision.verdict} ${decider.kind === 'rule' ? decider.rule : decider.kind} ${decision.reason}`;
};

describe('`StepFinder.stepsOf` for a connection', () => {
  test('the first decision step that `StepFinder.stepsOf` returns for a connection has the verdict and audit mode of the reference evaluator', () => {
    const random = new Random(seedOf(6_001));
    for (let round = 0; round < 60; round++) {
      const generated = generatePolicy(random, { groups: 4, rules: 5 });
      const finder = finderOf(generated);
      const grants = generateGrants(round);
      const packet = packetGenerator(random, generated);
      for (let count = 0; count < 100; count++) {
        const tried = { ...packet(), protocol: 6, icmpType: 0, icmpCode: 0 };
        const { verdict, audited } = evaluate(generated, tried, grants);
        const [first] = finder.stepsOf(tried, grants);
        if (first === undefined) throw new Error('a connection has no step');
        const said = first.tls !== null ? 'redirect' : verdictOf([first], facts(NO_TLS)).split(' ')[0];
        expect([said, first.mode === 'audit']).toEqual([verdict, audited]);
      }
    }
  });

  test('`StepFinder.stepsOf` reads only the compiled policy, and agrees with the reference evaluator, if no rule has TLS matchers or a hostname', () => {
    const random = new Random(seedOf(6_002));
    for (let round = 0; round < 40; round++) {
      const generated = generatePolicy(random, { groups: 4, rules: 5, tls: false, hostnames: false });
      const finder = finderOf(generated, false);
      const packet = packetGenerator(random, generated);
      for (let count = 0; count < 50; count++) {
        const tried = { ...packet(), protocol: 6, icmpType: 0, icmpCode: 0 };
        const { verdict, audited } = evaluate(generated, tried);
        const [first] = finder.stepsOf(tried, null);
        expect([verdictOf([first as Step], facts(NO_TLS)).split(' ')[0], first?.mode === 'audit']).toEqual([
          verdict,
          audited,
        ]);
      }
    }
  });

  test('`StepFinder.stepsOf` returns deny rules with a hostname, and omits allow rules with a hostname, while the grants are unknown', () => {
    const hostname = { kind: 'exact', labels: ['api', 'test'], text: 'api.test' } as const;
    const named = (action: 'allow' | 'deny') =>
      finderOf(policy([group(['0.0.0.0/0'], [rule({ id: 'named', action, hostname }), rule({ id: 'rest' })])]));
    const first = (finder: StepFinder, grants: Parameters<StepFinder['stepsOf']>[1]) =>
      finder.stepsOf(FLOW, grants)[0]?.decider;
    const granted = grantsOf(FLOW.destination, new Set(['api.test']));
    expect(first(named('deny'), null)).toMatchObject({ rule: 'named' });
    expect(first(named('allow'), null)).toMatchObject({ rule: 'rest' });
    expect(first(named('deny'), noGrants)).toMatchObject({ rule: 'rest' });
    expect(first(named('allow'), granted)).toMatchObject({ rule: 'named' });
  });
});

describe('`StepFinder.stepsOf` while the owners of addresses are unknown', () => {
  const source = { integration: 'prod', pod_selector: { match_labels: { app: 'web' } } };
  const selected = (...rules: readonly Rule[]): StepFinder =>
    new StepFinder({
      generation: 1,
      scope: { ...NO_SELECTORS, resolved: new Set(['web']) },
      program: null,
      policy: policy([{ ...group([], rules), selectors: [{ key: 'web', source }] }]),
    });

  test.each([
    ['IPv4', FLOW],
    ['IPv6', { ...FLOW, source: 0xfd77n << 112n, destination: 0xfd78n << 112n }],
  ])('a group with a selector applies its deny rules, and no allow rule, to a source of %s', (_, flow) => {
    const allow = rule({ id: 'allow', action: 'allow' });
    const deny = rule({ id: 'deny', action: 'deny' });
    expect(selected(allow, deny).stepsOf(flow, noGrants)[0]?.decider).toMatchObject({ rule: 'deny' });
  });
});

describe('`decideConnection`', () => {
  const sni = { sni: ['good.test'] };

  test.each<[string, readonly Rule[], TlsFacts, string]>([
    ['a matching server name', [tlsRule('tls', sni)], facts(hello('good.test')), 'allow tls matched'],
    [
      'another server name, which the allow rule does not match',
      [tlsRule('tls', sni)],
      facts(hello('other.test')),
      'deny policy_default matched',
    ],
    [
      'no server name, which the allow rule does not match',
      [tlsRule('tls', sni)],
      facts(hello(null)),
      'deny policy_default no_server_name',
    ],
    [
      'no server name, which an allow rule and a deny rule before the default do not match',
      [
        tlsRule('tls', { sni: ['good.test'], server_cn: ['x'] }),
        tlsRule('other', { ech: 'present' }, { action: 'deny' }),
        rule({ id: 'rest', action: 'deny', mode: 'audit' }),
      ],
      facts(hello(null)),
      'audit rest no_server_name',
    ],
    [
      'no server name, which only the last allow rule does not need',
      [tlsRule('tls', sni), rule({ id: 'rest' })],
      facts(hello(null)),
      'allow rest matched',
    ],
    [
      'an untrusted certificate, which the allow rule does not match, and no server name of a later rule',
      [tlsRule('tls', { server_cn: ['x'] }), tlsRule('named', sni)],
      facts(hello(null), { ...CERTIFICATE, isTrusted: () => false }),
      'deny policy_default certificate_untrusted',
    ],
    [
      'an unreadable certificate, which the allow rule does not match and a deny rule without TLS follows',
      [tlsRule('tls', { server_cn: ['x'] }), rule({ id: 'rest', action: 'deny' })],
      facts(hello('a.test'), { kind: 'unreadable' }),
      'deny rest certificate_unreadable',
    ],
    [
      'an unreadable certificate, which the deny rule matches',
      [tlsRule('tls', { server_cn: ['x'] }, { action: 'deny' })],
      facts(hello('a.test'), { kind: 'unreadable' }),
      'deny tls certificate_unreadable',
    ],
    [
      'no server name, which the deny rule matches',
      [tlsRule('tls', sni, { action: 'deny' }), rule()],
      facts(hello(null)),
      'deny tls no_server_name',
    ],
    [
      'a matching server name of a ClientHello with ECH',
      [tlsRule('tls', sni)],
      facts(hello('good.test', { ech: true })),
      'allow tls matched',
    ],
    [
      'another server name of a ClientHello with ECH, which the deny rule does not match',
      [tlsRule('tls', sni, { action: 'deny' }), rule({ id: 'rest' })],
      facts(hello('other.test', { ech: true })),
      'allow rest matched',
    ],
    [
      'bytes that are no TLS, which the deny rule with `ech` matches',
      [tlsRule('tls', { ech: 'present' }, { action: 'deny' }), rule()],
      facts(NO_TLS),
      'deny tls not_tls',
    ],
    [
      'bytes that are no TLS, which the allow rule with `ech` does not match',
      [tlsRule('tls', { ech: 'absent' })],
      facts(NO_TLS),
      'deny policy_default not_tls',
    ],
    [
      'bytes that are no TLS, which the allow rule does not match',
      [tlsRule('tls', {}), rule({ id: 'rest' })],
      facts(NO_TLS),
      'allow rest matched',
    ],
    [
      'bytes that are no TLS, which the deny rule matches',
      [tlsRule('tls', {}, { action: 'deny' }), rule()],
      facts(NO_TLS),
      'deny tls not_tls',
    ],
    ['no TLS, allow rule in audit mode', [tlsRule('tls', {}, { mode: 'audit' })], facts(NO_TLS), 'audit tls not_tls'],
    [
      'a deny rule in audit mode',
      [tlsRule('tls', sni, { action: 'deny', mode: 'audit' })],
      facts(hello('good.test')),
      'audit tls matched',
    ],
    [
      'a certificate that was not requested yet',
      [tlsRule('tls', { server_cn: ['x'] })],
      facts(hello('a.test')),
      'needs_certificate',
    ],
    [
      'a hidden certificate, which the rule denies by default',
      [tlsRule('tls', { server_cn: ['x'] })],
      facts(hello('a.test'), { kind: 'hidden', by: 'tls13' }),
      'deny tls hidden',
    ],
    [
      'a hidden certificate that the rule allows',
      [tlsRule('tls', { server_cn: ['x'], tls13_uninspectable: 'allow' })],
      facts(hello('a.test'), { kind: 'hidden', by: 'resumption' }),
      'allow tls hidden',
    ],
    ['an intercept rule', [tlsRule('tls', { mode: 'intercept', http: {} })], facts(hello('a.test')), 'intercept'],
    [
      'bytes that are no TLS and an intercept rule',
      [tlsRule('tls', { mode: 'intercept', http: {} }), rule({ id: 'rest' })],
      facts(NO_TLS),
      'allow rest matched',
    ],
    [
      'bytes that are no TLS, an intercept rule and no other rule',
      [tlsRule('tls', { mode: 'intercept', http: {} })],
      facts(NO_TLS),
      'deny policy_default not_tls',
    ],
  ])(
    '`decideConnection` returns the expected verdict, deciding rule and reason for a connection with %s',
    (_, rules, of, wanted) => {
      expect(verdictOf(stepsOf(...rules), of)).toBe(wanted);
    },
  );
});

test('`decideRequest` continues with the next rule or default if a request does not match an intercept rule, and ends at the policy default', () => {
  const get = { mode: 'intercept', http: { request: { methods: ['GET'] } } } as const;
  const del = { mode: 'intercept', http: { request: { methods: ['DELETE'] } } } as const;
  const steps = stepsOf(tlsRule('get', get), tlsRule('delete', del, { action: 'deny', mode: 'audit' }));
  const asked = (method: string): string => {
    const request: RequestFacts = { method, host: 'a.test', path: '/', query: null, headers: [] };
    const { step, verdict } = decideRequest(steps, 0, facts(hello('a.test')), request);
    return `${verdict} ${step.decider.kind === 'rule' ? step.decider.rule : step.decider.kind}`;
  };
  expect(['GET', 'DELETE', 'PUT'].map(asked)).toEqual(['allow get', 'audit delete', 'deny policy_default']);
});

test('`decideRequest` returns, for a request that a default denies, why an allow rule could not be decided', () => {
  const get = { mode: 'intercept', http: { request: { methods: ['GET'] } } } as const;
  const steps = stepsOf(tlsRule('get', get), tlsRule('certificate', { server_cn: ['x'] }));
  const put: RequestFacts = { method: 'PUT', host: 'a.test', path: '/', query: null, headers: [] };
  const reasonFor = (certificate: CertificateFacts) =>
    decideRequest(steps, 0, facts(hello('a.test'), certificate), put).reason;
  expect(reasonFor({ ...CERTIFICATE, isTrusted: () => false })).toBe('certificate_untrusted');
  expect(reasonFor({ ...CERTIFICATE, commonNames: ['y'] })).toBe('matched');
});
