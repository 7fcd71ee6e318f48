import { expect, test } from 'vitest';
import { analyse } from '#analysis/analyse.js';
import { passes } from '#analysis/engine/decision-lists.js';
import type { AskAnswer, FlowQuestion } from '#contracts/analysis/flow-question.js';
import { IPPROTO, type Packet, PORT_PROTOCOLS, type Policy } from '#contracts/policy/policy-model.js';
import { explain } from '#policy/explain/explain.js';
import { formatAddress } from '#policy/model/ipv4.js';
import { Random, seedOf } from '#test/seed.js';
import { packetGenerator } from '../policy/generate.js';
import { randomPolicy } from './edits.js';
import { modelOf, OFFICE } from './office.js';
import { decideIn, randomWorld } from './world.js';

const QUESTIONS = Number(process.env.WEIR_PAIRS ?? 1_500);
const QUESTIONS_OF_A_POLICY = 20;

function ask(policy: Policy, asked: FlowQuestion): AskAnswer {
  const answer = analyse([policy], { kind: 'ask', asked, limit: 50 });
  if (answer.kind !== 'ask') throw new Error(JSON.stringify(answer));
  return answer.answer;
}

/** Returns the question about exactly this packet, with any ICMP code. */
function questionAbout({ source, destination, protocol, sourcePort, destinationPort, icmpType }: Packet): FlowQuestion {
  return {
    from: [formatAddress(source)],
    to: [formatAddress(destination)],
    proto: protocol,
    ...(PORT_PROTOCOLS.includes(protocol) ? { ports: [destinationPort], src_ports: [sourcePort] } : {}),
    ...(protocol === IPPROTO.icmp ? { icmp_types: [icmpType] } : {}),
  };
}

test('`ask` and the walk over a policy agree about each flow: never passes in no world, always in every world', () => {
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

test('`ask` with a name assumes that the destination is granted for this name and for no other name', () => {
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
  const answer = analyse([modelOf(OFFICE)], { kind: 'ask', asked, limit: 50 });
  expect(answer).toMatchObject({ kind: 'invalid_question', problems: [{ pointer }] });
});
