import { expect, test } from 'vitest';
import { formatAddress } from '#addresses/ip-address.js';
import { analyse } from '#analysis/analyse.js';
import { askPolicy } from '#analysis/answer/ask.js';
import { IPV4 } from '#analysis/engine/address-space.js';
import { passes } from '#analysis/engine/decision-lists.js';
import type { AskAnswer, FlowQuestion } from '#contracts/analysis/flow-question.js';
import { IPPROTO, type Packet, PORT_PROTOCOLS, type Policy } from '#contracts/policy/policy-model.js';
import { explain } from '#policy/explain/explain.js';
import { Random, seedOf } from '#test/seed.js';
import { packetGenerator } from '../policy/generate.js';
import { randomPolicy } from './edits.js';
import { modelOf, OFFICE, officeAfter } from './office.js';
import { decideIn, randomWorld } from './world.js';

const QUESTIONS = Number(process.env.WEIR_PAIRS ?? 1_500);
const QUESTIONS_OF_A_POLICY = 20;

function ask(policy: Policy, asked: FlowQuestion): AskAnswer {
  const answer = analyse([policy], { kind: 'ask', asked, limit: 50 }, false);
  if (answer.kind !== 'ask') throw new Error(JSON.stringify(answer));
  return answer.answer;
}

/** Returns the question about exactly this packet, with any ICMP code. */
function questionAbout({
  source,
  destination,
  protocol,
  sourcePort,
  destinationPort,
  icmpType,
}: Packet<number>): FlowQuestion {
  return {
    from: [formatAddress(source)],
    to: [formatAddress(destination)],
    proto: protocol,
    ...(PORT_PROTOCOLS.includes(protocol) ? { ports: [destinationPort], src_ports: [sourcePort] } : {}),
    ...(protocol === IPPROTO.icmp ? { icmp_types: [icmpType] } : {}),
  };
}

test('for a question about flows, `ask` answers "never" or "always" only if a step-by-step evaluation of the policy agrees', () => {
  const answers = { never: 0, always: 0, sometimes: 0 };
  const seed = seedOf(3);
  for (let count = 0; count < QUESTIONS; count += QUESTIONS_OF_A_POLICY) {
    const random = new Random(seed * 1_000_003 + count);
    const isPlain = random.chance(0.5);
    const policy = randomPolicy(random, isPlain ? { tls: false, hostnames: false, selectors: 0 } : {});
    const packet = packetGenerator(random, policy);
    for (let question = 0; question < QUESTIONS_OF_A_POLICY; question++) {
      const asked = packet();
      const { answer, passing, denied } = ask(policy, questionAbout(asked));
      answers[answer]++;
      for (let tried = 0; tried < 5; tried++) {
        const world = randomWorld(random, [policy]);
        const isPassing = passes(decideIn(policy, asked, world).outcome);
        const told = JSON.stringify({ count, asked, answer });
        if (answer === 'never') expect(isPassing, told).toBe(false);
        if (answer === 'always') expect(isPassing, told).toBe(true);
      }
      // Without conditions in the policy, `explain` names the same rule.
      const [only] = [...passing, ...denied];
      const hasSelectors = policy.groups.some(({ selectors }) => selectors.length > 0);
      if (!isPlain || hasSelectors || only === undefined || asked.protocol === IPPROTO.icmp) continue;
      const explained = explain(policy, { packet: asked });
      // The node drops a packet with a source that no packet can have, before the policy.
      if (explained.walk.length === 0) continue;
      expect([explained.source_group, explained.rule], JSON.stringify({ asked, only, explained })).toEqual([
        only.decider.source_group,
        only.decider.rule,
      ]);
    }
  }
  expect(Math.min(...Object.values(answers))).toBeGreaterThan(QUESTIONS / 100);
});

test('`ask` names the rule that denies a flow, and the rule that would let it pass', () => {
  const answer = ask(modelOf(OFFICE), { from: ['10.1.0.77'], to: ['192.0.2.1'], ports: [25] });
  expect([answer.answer, answer.summary]).toEqual(['never', 'never: office/no-smtp denies them']);
  expect(answer.obstacles).toEqual([
    {
      decider: { decision: 'deny', mode: 'enforce', source_group: 'office', rule: 'no-smtp' },
      flows: '65536',
      remedy: {
        source_group: 'office',
        before: 'no-smtp',
        rule: {
          id: 'allow-asked',
          action: 'allow',
          match: { dst_cidrs: ['192.0.2.1/32'], proto: 'tcp', dst_ports: [25] },
        },
      },
    },
  ]);
});

test('`ask` with a DNS name assumes that the destination address was resolved from this name and from no other name', () => {
  const asked = { from: ['10.1.0.77'], to: ['192.0.2.1'], ports: [8443] };
  const answers = [{}, { name: 'API.example.com.' }, { name: 'www.example.com' }].map(
    (name) => ask(modelOf(OFFICE), { ...asked, ...name }).answer,
  );
  expect(answers).toEqual(['sometimes', 'always', 'never']);
});

test.each<[asked: FlowQuestion, pointer: string]>([
  [{ from: ['10.1.0.0/33'] }, '/from/0'],
  [{ from: { group: 'nobody' } }, '/from/group'],
  [{ to: [] }, '/to'],
  [{ proto: 'icmp', ports: [80] }, '/proto'],
  [{ proto: 'sctpp' }, '/proto'],
  [{ ports: ['99999'] }, '/ports/0'],
  [{ proto: 'tcp', icmp_types: [8] }, '/proto'],
])('`ask` refuses the question %j with the pointer %s', (asked, pointer) => {
  const answer = analyse([modelOf(OFFICE)], { kind: 'ask', asked, limit: 50 }, false);
  expect(answer).toMatchObject({ kind: 'invalid_question', problems: [{ pointer }] });
});

test.each<[from: string, group: string | null]>([
  ['10.1.0.77', 'office'],
  ['10.77.0.1', null],
])(
  '`ask` from %s names the group %s, at whose end a rule lets a flow pass that the default policy denies',
  (from, group) => {
    const { obstacles } = ask(modelOf(OFFICE), { from: [from], to: ['192.0.2.1'], ports: [9999] });
    expect(obstacles).toMatchObject([
      { decider: { source_group: null, rule: null }, flows: '65536', remedy: { source_group: group, before: null } },
    ]);
  },
);

test('`ask` lists the rule that denies most of the flows first, with all flows that it denies', () => {
  const { flows, obstacles, denied, passing } = ask(modelOf(OFFICE), { from: { group: 'office' }, proto: 'tcp' });
  const all = ask(modelOf(OFFICE), {});
  const sizes = [obstacles, denied, passing, all.denied, all.passing].map((list) =>
    list.map((one) => BigInt(one.flows)),
  );
  for (const list of sizes) expect(list).toEqual(list.toSorted((one, other) => (one < other ? 1 : -1)));
  expect(obstacles.map(({ decider }) => decider.rule)).toEqual([null, 'no-smtp']);
  expect(sizes[0]?.reduce((sum, size) => sum + size, 0n).toString()).toBe(flows.denied);
  expect(obstacles.map(({ remedy }) => remedy)).toEqual([null, null]);
  // 256 sources, every address, every port and source port.
  expect(BigInt(flows.passing) + BigInt(flows.denied)).toBeGreaterThanOrEqual(2n ** (8n + 32n + 32n));
});

test('`ask` from a group with selectors asks about every source that a selector of the group selects', () => {
  const source = { integration: 'prod', pod_selector: { match_labels: { app: 'web' } } };
  const policy = modelOf(
    officeAfter((draft) =>
      draft.source_groups.unshift({
        id: 'pods',
        mode: 'enforce',
        sources: { cidrs: ['10.77.0.0/24'], kubernetes: [source] },
        rules: [
          { id: 'no-telnet', action: 'deny', match: { proto: 'tcp', dst_ports: [23] } },
          { id: 'web', action: 'allow', match: { proto: 'tcp', dst_ports: [443] } },
        ],
      } as never),
    ),
  );
  const answers = [{ group: 'pods' }, ['10.9.0.1'], ['10.77.0.1']].flatMap((from) =>
    [443, 23, 80].map((port) => ask(policy, { from, to: ['192.0.2.1'], ports: [port] }).answer),
  );
  expect(answers).toEqual([
    ...['always', 'never', 'sometimes'],
    ...['sometimes', 'never', 'never'],
    ...['always', 'never', 'never'],
  ]);
});

test('`ask` answers "sometimes" if it reaches the limit of steps', () => {
  const asked = { from: ['10.1.0.0/16'], to: ['192.0.2.1'], ports: [443] };
  const answer = askPolicy(modelOf(OFFICE), asked, { spaces: [IPV4], limit: 5, steps: 20 });
  expect(answer).toMatchObject({
    answer: 'sometimes',
    summary: 'sometimes; the answer is not complete',
    complete: false,
    left: { networks: ['10.1.0.0/16'] },
  });
});

test('`ask` counts the sets of flows that its answer does not list', () => {
  const answer = analyse([modelOf(OFFICE)], { kind: 'ask', asked: { from: { group: 'office' } }, limit: 1 }, false);
  if (answer.kind !== 'ask') throw new Error('no answer');
  const whole = ask(modelOf(OFFICE), { from: { group: 'office' } });
  const { passing, passing_omitted, denied, denied_omitted } = answer.answer;
  expect([passing.length, passing_omitted]).toEqual([1, whole.passing.length - 1]);
  expect([denied.length, denied_omitted]).toEqual([1, whole.denied.length - 1]);
});
