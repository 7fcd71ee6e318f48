import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { expect, onTestFinished, test } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import type { GrantedReply, GrantedRequest } from '#contracts/datapath/grant-messages.js';
import { NO_SELECTORS } from '#contracts/kubernetes/membership.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import { inEvaluationOrder, policyOf } from '#policy/check/policy-parts.js';
import { readPolicy } from '#policy/check/read-policy.js';
import { ConnectionEvaluator } from '#service-plane/connection/connection-evaluator.js';
import { PolicyWriter } from '#service-plane/policy-image.js';

const PATTERN = '*.example.test';
const tls = { sni: ['a.example.test'] };
const RULES = [
  { id: 'named', action: 'allow', match: { proto: 'tcp', dst_ports: [443], dns_hostname: PATTERN, tls } },
  { id: 'addressed', action: 'allow', match: { proto: 'tcp', dst_ports: [8443], tls } },
];

function evaluator(): ConnectionEvaluator {
  const policy = {
    default_policy: 'deny',
    source_groups: [{ id: 'g', sources: { ips: ['10.0.0.1'] }, rules: RULES }],
  };
  const body = JSON.stringify({ name: 'p', mode: 'enforce', policy });
  const context = { dns: true, servicePlane: true, fallback: 'deny', recordMode: 'enforce', form: 'envelope' } as const;
  const read = readPolicy(body, { ...context, integrations: undefined, parseCertificate: () => undefined });
  if (!read.ok) throw new Error(JSON.stringify(read.problems));
  const { parts } = read.parsed;
  const texts = inEvaluationOrder(parts.groups).map(({ text }) => text ?? new Uint8Array(0));
  const made = new ConnectionEvaluator();
  const image = new PolicyWriter().write(policyOf(parts, 'deny'), texts);
  made.use({ generation: 1, program: null, policy: image, intercepts: false, scope: NO_SELECTORS });
  return made;
}

function flowTo(destinationPort: number): Packet<number> {
  const [source, destination] = ['10.0.0.1', '192.0.2.1'].map((text) => parseIpv4Address(text) ?? 0) as [
    number,
    number,
  ];
  return { source, destination, protocol: 6, sourcePort: 40_000, destinationPort, icmpType: 0, icmpCode: 0 };
}

/** Returns a message port. Its other end replies that each address has a grant for `PATTERN`. */
function granting(): MessagePort {
  const { port1, port2 } = new MessageChannel();
  onTestFinished(() => port2.close());
  port2.on('message', ({ id }: GrantedRequest) =>
    port2.postMessage({ id, patterns: [PATTERN] } satisfies GrantedReply),
  );
  return port1;
}

test('the decision on a connection waits for the DNS grants if a rule has a hostname, and does not wait otherwise', async () => {
  const waiting = evaluator();
  waiting.awaitGrants(60_000);
  const named = waiting.stepsOf(flowTo(443));
  const addressed = await waiting.stepsOf(flowTo(8443));
  expect(await Promise.race([named, Promise.resolve('waits')])).toBe('waits');
  waiting.setGrantPort(granting());
  expect([await named, addressed].map((steps) => steps?.length)).toEqual([2, 2]);
});

test('no rule decides a connection that a rule with a hostname can match if the datapath does not respond in time', async () => {
  const waiting = evaluator();
  waiting.awaitGrants(20);
  expect(await waiting.stepsOf(flowTo(443))).toBeNull();
});
