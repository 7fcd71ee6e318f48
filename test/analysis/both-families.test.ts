import { describe, expect, test } from 'vitest';
import { familyOf, formatAddress } from '#addresses/ip-address.js';
import { analyse } from '#analysis/analyse.js';
import { affectedAssertions, checkChange } from '#analysis/answer/changed-assertions.js';
import { policyDiff } from '#analysis/answer/policy-diff.js';
import { IPV4, IPV6 } from '#analysis/engine/address-space.js';
import { compare } from '#analysis/engine/comparison.js';
import { passes } from '#analysis/engine/decision-lists.js';
import { itemAt } from '#arrays/read.js';
import { styleOf } from '#cli/output/style.js';
import { flowDifferenceText } from '#cli/policy/flow-difference.js';
import type { AnalysisQuestion } from '#contracts/analysis/analysis.js';
import type { Assertion, AssertionResult } from '#contracts/analysis/assertion.js';
import type { AskAnswer, FlowQuestion } from '#contracts/analysis/flow-question.js';
import type { PolicyDiff } from '#contracts/analysis/policy-diff.js';
import { ICMP, type Packet, PORT_PROTOCOLS, type Policy } from '#contracts/policy/policy-model.js';
import { explain } from '#policy/explain/explain.js';
import { Random, seedOf } from '#test/seed.js';
import { packetsOf } from './check-comparison.js';
import { randomPolicy } from './edits.js';
import { type Draft, DUAL_OFFICE, dualModelOf, dualOfficeAfter, modelOf, OFFICE, officeAfter } from './office.js';
import { decideIn, randomWorld } from './world.js';

const QUESTIONS = Number(process.env.WEIR_PAIRS ?? 1_500);
const QUESTIONS_OF_A_POLICY = 20;

function diffBetween(before: Policy, after: Policy): PolicyDiff {
  const answer = analyse([before, after], { kind: 'diff', limit: 50 }, true);
  if (answer.kind !== 'diff') throw new Error(answer.kind);
  return answer.diff;
}

const diffAfter = (edit: (draft: Draft) => void): PolicyDiff =>
  diffBetween(dualModelOf(DUAL_OFFICE), dualModelOf(dualOfficeAfter(edit)));

function ask(asked: FlowQuestion, policy = dualModelOf(DUAL_OFFICE)): AskAnswer {
  const answer = analyse([policy], { kind: 'ask', asked, limit: 50 }, true);
  if (answer.kind !== 'ask') throw new Error(JSON.stringify(answer));
  return answer.answer;
}

const rulesOf = (draft: Draft, at = 1) => itemAt(draft.source_groups, at).rules ?? [];
const ruleOf = (draft: Draft, id: string) => {
  const rule = rulesOf(draft).find((one) => one.id === id);
  if (rule === undefined) throw new Error(id);
  return rule;
};

describe('a node that enforces no IPv6 policies', () => {
  /** Adds IPv6 sources, rules and a group behind those of the document. */
  const withIpv6 = (draft: Draft): void => {
    for (const group of draft.source_groups) {
      group.sources.cidrs?.push('2001:db8::/32');
      group.rules?.push({ id: 'ipv6', action: 'allow', match: { dst_cidrs: ['2001:db8::/32'] } });
    }
    const rules = [{ id: 'all', action: 'allow', match: {} }];
    draft.source_groups.push({ id: 'ipv6', mode: 'enforce', sources: { cidrs: ['::/0'] }, rules });
  };
  const audited = (draft: Draft): void => {
    for (const group of draft.source_groups) group.mode = 'audit';
  };
  const assertions = [{ id: 'one', never: { from: ['10.1.0.0/24'], to: ['10.3.0.0/24'] } }];

  test.each<[AnalysisQuestion['kind'], AnalysisQuestion]>([
    ['diff', { kind: 'diff', limit: 50 }],
    ['ask', { kind: 'ask', asked: { from: ['10.0.0.0/8'] }, limit: 50 }],
    ['assertions', { kind: 'assertions', document: { assertions }, limit: 3 }],
  ])('answers a question (%s) about IPv4 flows alone, also if the policy has IPv6 prefixes', (_kind, question) => {
    const answerFor = (edit: (draft: Draft) => void) => {
      const after = officeAfter((draft) => {
        edit(draft);
        audited(draft);
      });
      return analyse([modelOf(officeAfter(edit)), modelOf(after)], question, false);
    };
    expect(answerFor(withIpv6)).toEqual(answerFor(() => {}));
  });

  test('refuses a question and an assertion about an IPv6 address', () => {
    const message = 'Answers about IPv6 need dataplane.ipv6: enforce in the configuration of the node.';
    const asked = { from: ['2001:db8::1'] };
    expect(analyse([modelOf(OFFICE)], { kind: 'ask', asked, limit: 50 }, false)).toEqual({
      kind: 'invalid_question',
      problems: [{ pointer: '/from/0', message }],
    });
    const document = { assertions: [{ id: 'one', never: { to: ['10.0.0.1', '::/0'] } }] };
    expect(analyse([modelOf(OFFICE)], { kind: 'assertions', document, limit: 3 }, false)).toEqual({
      kind: 'invalid_question',
      problems: [{ pointer: '/assertions/0/never/to/1', code: 'invalid_value', message }],
    });
  });
});

describe('the difference of two policies of both families', () => {
  test('states an IPv6 destination that a rule gains, and no change of IPv4', () => {
    const diff = diffAfter((draft) => ruleOf(draft, 'files').match.dst_cidrs?.push('2001:0DB8:0:4::/64'));
    expect(diff.summary).toBe(
      '18,446,744,073,709,551,360 sources of office gain 2001:db8:0:4::/64 tcp/445; no source loses a flow',
    );
    expect(diff.regions).toMatchObject([
      {
        effect: 'opens',
        sources: { networks: ['2001:db8:1::/64'], except: ['2001:db8:1::/120'] },
        destinations: { networks: ['2001:db8:0:4::/64'], except: [] },
        services: { services: ['tcp/445'] },
        before: { source_group: null, rule: null, decision: 'deny' },
        after: { source_group: 'office', rule: 'files', decision: 'allow' },
        cause: { part: 'rule', change: 'changed', source_group: 'office', rule: 'files' },
        example: { src: '2001:db8:1::101', dst: '2001:db8:0:4::1', proto: 6, src_port: 40_000, dst_port: 445 },
      },
    ]);
    const flows = (2n ** 64n - 256n) * 2n ** 64n * 65_536n;
    expect([diff.flows.opens, diff.flows.closes, diff.verdict]).toEqual([flows.toString(), '0', 'opens']);
  });

  test('states the lookups that sources of both families gain or lose as one change of each name', () => {
    const named = (name: string) => (draft: Draft) => {
      ruleOf(draft, 'api').match.dns_hostname = name;
      // A rule for TCP without destinations admits lookups of all names.
      rulesOf(draft).splice(rulesOf(draft).indexOf(ruleOf(draft, 'web')), 1);
    };
    const [before, after] = ['old.example.com', 'new.example.com'].map((name) =>
      dualModelOf(dualOfficeAfter(named(name))),
    );
    if (before === undefined || after === undefined) throw new Error('two models are needed');
    const { lookups, summary } = diffBetween(before, after);
    const sources = { networks: ['10.1.0.0/24', '2001:db8:1::/64'], except: ['10.1.0.0/29', '2001:db8:1::/120'] };
    expect(lookups).toMatchObject([
      { effect: 'opens', names: 'new.example.com', sources },
      { effect: 'closes', names: 'old.example.com', sources },
    ]);
    expect(summary).toContain('lookups of new.example.com open, and 1 more change');
  });

  test.each<[list: string[], texts: string[], notice: string[]]>([
    [['0.0.0.0/0'], ['10.1.0.0/24 except 10.1.0.0/29 → any'], ['flows to every IPv4 destination open']],
    [['::/0'], ['2001:db8:1::/64 except 2001:db8:1::/120 → any IPv6'], ['flows to every IPv6 destination open']],
    [
      ['::/0', '0.0.0.0/0'],
      ['10.1.0.0/24 except 10.1.0.0/29 → any', '2001:db8:1::/64 except 2001:db8:1::/120 → any IPv6'],
      ['flows to every destination open'],
    ],
  ])('states which family a rule for %j opens', (dst_cidrs, texts, notices) => {
    const match = { dst_cidrs, proto: 'tcp', dst_ports: [8080] };
    const diff = diffAfter((draft) => rulesOf(draft).push({ id: 'more', action: 'allow', match }));
    const lines = flowDifferenceText(diff, styleOf({ colours: false })).split('\n');
    const opens = lines
      .filter((line) => line.startsWith('opens '))
      .map((line) => line.replace(' (office/more added)', ''));
    expect(opens).toEqual(texts.map((text) => `opens ${text} tcp/8080`));
    expect(diff.notices.map(({ text }) => text)).toEqual(notices);
  });

  test('states which ICMPv6 messages a rule opens, and that a rule for ICMP opens none of them', () => {
    const push = (match: object) => (draft: Draft) => rulesOf(draft).push({ id: 'more', action: 'allow', match });
    const services = (match: object) =>
      diffAfter(push(match)).regions.map((region) => [region.example.src.includes(':'), region.services.services]);
    expect(services({ proto: 'icmpv6', icmp_types: [129] })).toEqual([[true, ['icmpv6/129']]]);
    expect(services({ proto: 'icmpv6', icmp_types: [1], icmp_codes: [4] })).toEqual([[true, ['icmpv6/1.4']]]);
    expect(services({ proto: 'icmp', icmp_types: [8] })).toEqual([[false, ['icmp/8']]]);
    // An IPv6 packet with the protocol 1 has the type 0.
    expect(services({ proto: 'icmp', icmp_types: [0] })).toEqual([
      [false, ['icmp/0']],
      [true, ['proto 1']],
    ]);
    const [region] = diffAfter(push({ proto: 'icmpv6', icmp_types: [129] })).regions;
    expect(region?.example).toEqual({
      ...{ src: '2001:db8:1::101', dst: '2001:db8::1', proto: 58, icmp_type: 129, icmp_code: 0 },
    });
  });

  test('states an IPv6 source that a group loses', () => {
    const diff = diffAfter((draft) => itemAt(draft.source_groups, 0).sources.cidrs?.pop());
    expect(diff.verdict).toBe('closes');
    expect(diff.regions.every(({ sources }) => sources.networks.join() === '2001:db8:1::/120')).toBe(true);
    expect(diff.causes).toMatchObject([{ part: 'group', change: 'sources', source_group: 'admins' }]);
  });

  test('is about both families if the default of the policy changes, also for policies without IPv6 prefixes', () => {
    const open = officeAfter((draft) => {
      draft.default_policy = 'allow';
    });
    const { summary, regions, notices } = diffBetween(dualModelOf(OFFICE), dualModelOf(open));
    expect(regions[0]?.example.src).not.toContain(':');
    expect(regions[1]).toMatchObject({
      sources: { networks: ['::/0'], except: [], addresses: (2n ** 128n).toString() },
      destinations: { networks: ['::/0'], except: [] },
      services: { services: ['any'] },
      cause: { part: 'policy_default' },
    });
    expect(summary).toMatch(/ gain everything and \d+ more; no source loses a flow; lookups of \* open$/);
    expect(notices.map(({ text }) => text)).toContain('flows from every IPv6 source open');
  });

  test('lists the largest regions of both families, so that a limit leaves out none of them', () => {
    const after = dualOfficeAfter((draft) => rulesOf(draft).push({ id: 'all', action: 'allow', match: {} }));
    const question = { kind: 'diff', limit: 2 } as const;
    const answer = analyse([dualModelOf(DUAL_OFFICE), dualModelOf(after)], question, true);
    if (answer.kind !== 'diff') throw new Error(answer.kind);
    expect(answer.diff.regions.map(({ sources }) => sources.networks)).toEqual([['10.1.0.0/24'], ['2001:db8:1::/64']]);
    expect(answer.diff.regions_omitted).toBeGreaterThan(0);
  });

  test('counts the steps of both families together, begins with the smaller one, and names the sources that are left', () => {
    const before = dualModelOf(DUAL_OFFICE);
    const after = dualModelOf(
      dualOfficeAfter((draft) => {
        draft.default_policy = 'allow';
        const hosts = Array.from({ length: 200 }, (_, at) => ({
          ...{ id: `host-${at}`, mode: 'enforce' as const, sources: { ips: [`10.7.0.${at}`] } },
          rules: [{ id: 'web', action: 'allow', match: { proto: 'tcp', dst_ports: [at] } }],
        }));
        draft.source_groups.push(...hosts);
      }),
    );
    const left = (steps: number) => compare(before, after, { spaces: [IPV4, IPV6], steps }).left;
    expect(left(1_000_000)).toEqual([]);
    expect(left(2_000).map(({ space }) => space.name)).toEqual(['IPv4']);
    expect(left(10).map(({ space }) => space.name)).toEqual(['IPv4', 'IPv6']);
    const options = { spaces: [IPV4, IPV6], limit: 5, steps: 10 };
    expect(policyDiff(before, after, options)).toMatchObject({
      complete: false,
      left: { networks: ['0.0.0.0/0', '::/0'], addresses: (2n ** 32n + 2n ** 128n).toString() },
    });
  });

  test('an equal comparison of both families has no region', () => {
    expect(diffAfter(() => {})).toMatchObject({ verdict: 'equal', summary: 'every flow is decided alike' });
  });
});

/** Returns the question about exactly this packet, with any ICMP code. */
function questionAbout({ source, destination, protocol, sourcePort, destinationPort, icmpType }: Packet): FlowQuestion {
  return {
    from: [formatAddress(source)],
    to: [formatAddress(destination)],
    proto: protocol,
    ...(PORT_PROTOCOLS.includes(protocol) ? { ports: [destinationPort], src_ports: [sourcePort] } : {}),
    ...(protocol === ICMP[familyOf(source)] ? { icmp_types: [icmpType] } : {}),
  };
}

describe('a question about both families', () => {
  test('`ask` and the walk over a policy agree about each flow of both families', () => {
    const answers = { never: 0, always: 0, sometimes: 0 };
    const seed = seedOf(23);
    for (let count = 0; count < QUESTIONS; count += QUESTIONS_OF_A_POLICY) {
      const random = new Random(seed * 1_000_003 + count);
      const isPlain = random.chance(0.5);
      const families = ['ipv4', 'ipv6'] as const;
      const plain = { families, tls: false, hostnames: false, selectors: 0 };
      const policy = randomPolicy(random, isPlain ? plain : { families });
      const packets = [IPV4, IPV6].map((space) => packetsOf(random, policy, space).edge);
      for (let question = 0; question < QUESTIONS_OF_A_POLICY; question++) {
        const asked = random.pick(packets)();
        const { answer, passing, denied } = ask(questionAbout(asked), policy);
        answers[answer]++;
        const told = JSON.stringify({ count, asked: questionAbout(asked), answer });
        for (let tried = 0; tried < 5; tried++) {
          const isPassing = passes(decideIn(policy, asked, randomWorld(random, [policy])).outcome);
          if (answer === 'never') expect(isPassing, told).toBe(false);
          if (answer === 'always') expect(isPassing, told).toBe(true);
        }
        // Without conditions in the policy, `explain` names the same rule.
        const [only] = [...passing, ...denied];
        const hasSelectors = policy.groups.some(({ selectors }) => selectors.length > 0);
        if (!isPlain || hasSelectors || only === undefined || asked.protocol === ICMP[familyOf(asked.source)]) continue;
        const { walk, source_group, rule } = explain(policy, { packet: asked });
        // The node drops a packet with a source that no packet can have, before the policy.
        if (walk.length === 0) continue;
        expect([source_group, rule], told).toEqual([only.decider.source_group, only.decider.rule]);
      }
    }
    expect(Math.min(...Object.values(answers))).toBeGreaterThan(QUESTIONS / 100);
  });

  test('names the rule that denies an IPv6 flow, and the rule that would let it pass', () => {
    const { answer, summary, obstacles } = ask({ from: ['2001:db8:1::aaaa'], to: ['2001:db8:2::1'], ports: [25] });
    expect([answer, summary]).toEqual(['never', 'never: office/no-smtp denies them']);
    expect(obstacles).toEqual([
      {
        decider: { decision: 'deny', mode: 'enforce', source_group: 'office', rule: 'no-smtp' },
        flows: '65536',
        remedy: {
          source_group: 'office',
          before: 'no-smtp',
          rule: {
            id: 'allow-asked',
            action: 'allow',
            match: { dst_cidrs: ['2001:db8:2::1/128'], proto: 'tcp', dst_ports: [25] },
          },
        },
      },
    ]);
  });

  test.each<[from: string[], group: string | null]>([
    [['2001:db8:1::aaaa'], 'office'],
    [['2001:db8:1::1'], 'admins'],
    [['2001:db8:7::1'], null],
    [['10.1.0.77', '2001:db8:1::aaaa'], 'office'],
    [['10.1.0.77', '2001:db8:7::1'], null],
  ])('from %j names the group %s, at whose end a rule lets the flows pass', (from, group) => {
    const policy = dualModelOf(dualOfficeAfter((draft) => rulesOf(draft, 0).shift()));
    const { obstacles } = ask({ from, to: ['192.0.2.1', '2001:db8:2::1'], ports: [9999] }, policy);
    const match = { dst_cidrs: ['192.0.2.1/32', '2001:db8:2::1/128'], proto: 'tcp', dst_ports: [9999] };
    expect(obstacles).toMatchObject([{ remedy: { source_group: group, before: null, rule: { match } } }]);
  });

  test('the rule of a remedy for an IPv6 packet lets it pass', () => {
    const asked = { from: ['2001:db8:1::aaaa'], to: ['2001:db8:2::1'], proto: 'icmpv6', icmp_types: [129] };
    const { obstacles, answer } = ask(asked);
    const rule = obstacles[0]?.remedy?.rule;
    const after = dualOfficeAfter((draft) => rulesOf(draft).push(rule as never));
    expect([answer, ask(asked, dualModelOf(after)).answer]).toEqual(['never', 'always']);
  });

  test('without sources is about the sources of both families that pass', () => {
    const { answer, summary, passing_sources, flows } = ask({ to: ['10.3.0.7', '2001:db8:3::7'], ports: [445] });
    expect([answer, passing_sources]).toEqual([
      'sometimes',
      {
        networks: ['10.1.0.0/24', '2001:db8:1::/64'],
        except: [],
        omitted: 0,
        addresses: (2n ** 8n + 2n ** 64n).toString(),
      },
    ]);
    expect(summary).toMatch(
      /^sometimes: .* allow from 10\.1\.0\.0\/24, 2001:db8:1::\/64; default_policy and the default of servers deny the rest$/,
    );
    expect(BigInt(flows.passing)).toBe((2n ** 8n + 2n ** 64n) * 65_536n);
  });

  test('from a group asks about its sources of both families', () => {
    const { passing } = ask({ from: { group: 'servers' } });
    expect(passing.map(({ sources, destinations }) => [sources.networks, destinations.networks])).toEqual([
      [['10.9.0.0/24'], ['10.20.0.0/24']],
      [['2001:db8:9::/64'], ['2001:db8:20::/64']],
    ]);
  });

  test.each<[asked: FlowQuestion, pointer: string, message: RegExp]>([
    [{ from: ['10.1.0.1'], to: ['2001:db8::1'] }, '/to', /different IP families/],
    [{ from: ['2001:db8::/129'] }, '/from/0', /neither an address nor a network/],
    [{ from: ['fe80::1%eth0'] }, '/from/0', /neither an address nor a network/],
    [{ to: ['::ffff:192.0.2.1'] }, '/to/0', /write "192\.0\.2\.1"/],
    [{ to: ['2001:db8::1'], proto: 'icmp', icmp_types: [8] }, '/proto', /IPv6 has icmpv6/],
    [{ from: ['10.1.0.1'], proto: 'icmpv6', icmp_types: [128] }, '/proto', /IPv4 has icmp/],
  ])('the question %j is refused with the pointer %s', (asked, pointer, message) => {
    expect(analyse([dualModelOf(DUAL_OFFICE)], { kind: 'ask', asked, limit: 50 }, true)).toEqual({
      kind: 'invalid_question',
      problems: [{ pointer, message: expect.stringMatching(message) as string }],
    });
  });
});

describe('an assertion about both families', () => {
  const resultOf = (assertion: object, policy = dualModelOf(DUAL_OFFICE)): AssertionResult => {
    const document = { assertions: [{ id: 'one', ...assertion }] };
    const answer = analyse(
      [policy, dualModelOf(OFFICE)],
      { kind: 'assertions', document, former: { one: 1 }, limit: 3 },
      true,
    );
    if (answer.kind !== 'assertions') throw new Error(JSON.stringify(answer));
    return itemAt(answer.results, 0);
  };
  const toServers = { to: ['2001:db8:9::/64'], ports: [22] };

  test.each<[result: AssertionResult['result'], message: RegExp, assertion: object]>([
    [
      'broken',
      /^admins\/all passes 2001:db8:1::\/120 → 2001:db8:9::\/64 tcp\/22$/,
      { never: { from: ['2001:db8:1::/64'], ...toServers } },
    ],
    ['holds', /^the assertion holds$/, { never: { from: ['2001:db8:1:0:8000::/65'], ...toServers } }],
    [
      'holds',
      /^the assertion holds$/,
      { always: { from: { group: 'office' }, to: ['2001:db8::53'], proto: 'udp', ports: [53] } },
    ],
    // The group has IPv6 sources, which reach only an IPv6 server.
    [
      'broken',
      /^office\/no-smtp denies 10\.1\.0\.0\/24 except 10\.1\.0\.0\/29 → any tcp\/25, and 1 more region$/,
      { always: { from: { group: 'office' }, ports: [25] } },
    ],
    ['holds', /^the assertion holds$/, { only: { from: ['2001:db8:1::/64'], to: ['2001:db8:3::/64'], ports: [445] } }],
    [
      'broken',
      /^office\/files passes 2001:db8:1::\/64 except 2001:db8:1::\/120 → 2001:db8:3::7 tcp\/445, and 1 more region$/,
      { only: { from: ['10.1.0.0/24'], to: ['10.3.0.7', '2001:db8:3::7'], ports: [445] } },
    ],
    [
      'broken',
      /^office\/web passes 2001:db8:1::\/64 except .* → any IPv6 except .* denied them$/,
      { opens_nothing_since: { revision: 1 } },
    ],
  ])('is %s with the message %s: %j', (result, message, assertion) => {
    expect(resultOf(assertion)).toMatchObject({ result, message: expect.stringMatching(message) as string });
  });

  test('is broken on a node that enforces no IPv6 policies any more, and names the setting', () => {
    const assertion: Assertion = { id: 'one', never: { to: ['2001:db8::1'] } };
    const judge = { spaces: [IPV4], steps: 1_000, limit: 3, formerOf: () => null, isOver: () => false };
    const policy = modelOf(OFFICE);
    expect(checkChange(policy, policy, affectedAssertions(policy, policy, [assertion], judge), judge)).toMatchObject([
      { result: 'broken', before: 'broken', message: expect.stringContaining('dataplane.ipv6: enforce') as string },
    ]);
  });
});
