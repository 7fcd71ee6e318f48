import { describe, expect, it } from 'vitest';
import { addressesText, asNetwork } from '../../../console/src/address-set.js';
import {
  answerText,
  assertionOf,
  type Fields,
  problemsOf,
  questionText,
  readFields,
} from '../../../console/src/pages/ask/question.js';

const asked = (fields: Partial<Fields>): Fields => ({ kind: 'always', from: '', to: '', service: '', ...fields });

describe('a question of the page Ask', () => {
  it.each<[Partial<Fields>, object]>([
    [{}, {}],
    [{ from: 'any', to: ' Any ', service: 'ANY' }, {}],
    [{ from: 'guest wifi' }, { from: { group: 'guest wifi' } }],
    [{ from: '10.1.0.7, 10.2.0.0/16' }, { from: ['10.1.0.7', '10.2.0.0/16'] }],
    [{ to: '10.9.0.5 db.example.com' }, { to: ['10.9.0.5'], name: 'db.example.com' }],
    [{ service: '443' }, { ports: ['443'] }],
    [{ service: 'UDP/53, 1000 - 2000' }, { proto: 'udp', ports: ['53', '1000-2000'] }],
    [{ service: 'icmp/8' }, { proto: 'icmp', icmp_types: [8] }],
    [{ service: 'ICMPv6/1, 128' }, { proto: 'icmpv6', icmp_types: [1, 128] }],
    [
      { from: '2001:db8::/32 10.1.0.7', to: '::/0' },
      { from: ['2001:db8::/32', '10.1.0.7'], to: ['::/0'] },
    ],
    [{ service: '47' }, { ports: ['47'] }],
    [{ service: 'esp' }, { proto: 'esp' }],
    [{ kind: 'who', from: '10.1.0.7', to: '10.9.0.5' }, { to: ['10.9.0.5'] }],
    [{ kind: 'what', from: '10.1.0.7', to: '10.9.0.5' }, { from: ['10.1.0.7'] }],
  ])('has of the fields %j the flows %j', (fields, flows) => {
    expect(readFields(asked(fields))).toEqual({ flows, problems: [] });
  });

  it('is refused with a problem at each field whose text has a wrong form', () => {
    const { flows, problems } = readFields(asked({ to: 'a.example b.example', service: 'tcp/22/23' }));
    expect([flows, problems.map(({ field }) => field)]).toEqual([null, ['to', 'service']]);
  });

  it('shows the problems that the node finds at its fields, and omits problems of the policy', () => {
    const problem = (pointer: string) => ({ pointer, code: 'invalid_value' as const, message: pointer });
    const problems = ['/from/group', '/name', '/ports/1', '/policy/policy'].map(problem);
    expect(problemsOf({ problems }).map(({ field }) => field)).toEqual(['from', 'to', 'service']);
  });

  it('can be written as a sentence', () => {
    expect(questionText(asked({ kind: 'who', to: '10.9.0.5', service: 'tcp/22' }))).toBe(
      'Who can reach 10.9.0.5 on tcp/22?',
    );
    expect(questionText(asked({ from: 'office' }))).toBe('Can office always reach every destination?');
  });

  it.each<[networks: string[], kept: string[] | null]>([
    [
      ['10.1.0.0/24', '2001:db8:1::/64'],
      ['10.1.0.0/24', '2001:db8:1::/64'],
    ],
    [
      ['0.0.0.0/0', '2001:db8:1::/64'],
      ['0.0.0.0/0', '2001:db8:1::/64'],
    ],
    [
      ['10.1.0.0/24', '::/0'],
      ['10.1.0.0/24', '::/0'],
    ],
    [['0.0.0.0/0'], null],
    [['0.0.0.0/0', '::/0'], null],
  ])('with the sources %j can be kept as an assertion for %j', (networks, kept) => {
    const fields = asked({ kind: 'who', to: '2001:db8:9::5' });
    const passing = networks.map((network) => ({ sources: { networks: [network], except: [], omitted: 0 } }));
    const answer = { answer: 'sometimes', complete: true, passing, passing_omitted: 0 } as never;
    const assertion = assertionOf(fields, { to: ['2001:db8:9::5'] }, answer);
    const only = { from: kept, to: ['2001:db8:9::5'] };
    expect(assertion).toEqual(kept === null ? null : { id: 'only-2001-db8-9-5', only });
  });

  it('is answered with the sources of both families', () => {
    const sources = { networks: ['10.1.0.0/24', '2001:db8::1/128'], except: [], omitted: 0, addresses: '257' };
    const answer = { answer: 'sometimes', complete: true, passing_sources: sources } as const;
    expect(answerText('who', answer)).toBe('Only 10.1.0.0/24, 2001:db8::1 can.');
  });
});

describe('a set of addresses', () => {
  it.each([
    [['0.0.0.0/0'], [], 'any'],
    [['::/0'], ['2001:db8::/32', '2001:db8::7/128'], 'any IPv6 except 2001:db8::/32, 2001:db8::7'],
    [['10.0.0.7/32', 'fd00::/32'], [], '10.0.0.7, fd00::/32'],
  ])('of the networks %j without %j is written as %s', (networks, except, text) => {
    expect(addressesText({ networks, except, omitted: 0, addresses: '1' })).toBe(text);
  });

  it.each([
    ['10.0.0.7', '10.0.0.7/32'],
    ['2001:db8::7', '2001:db8::7/128'],
    ['2001:db8::/32', '2001:db8::/32'],
  ])('with the address %s is the network %s', (text, network) => {
    expect(asNetwork(text)).toBe(network);
  });
});
