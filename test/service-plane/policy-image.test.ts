import { expect, test } from 'vitest';
import type { Policy } from '#contracts/policy/policy-model.js';
import { inEvaluationOrder, policyOf } from '#policy/check/policy-parts.js';
import { readPolicy as readText } from '#policy/check/read-policy.js';
import { PolicyWriter, readPolicy } from '#service-plane/policy-image.js';

type GroupInput = { readonly id: string } & Readonly<Record<string, unknown>>;

const rule = (name: string, more: Readonly<Record<string, unknown>> = {}) => ({
  id: name,
  action: 'allow',
  match: { proto: 'tcp', dst_ports: [443], tls: { sni: [`${name}.example.test`] } },
  ...more,
});
const group = (id: string, more: Readonly<Record<string, unknown>> = {}): GroupInput => ({
  id,
  sources: { cidrs: ['10.0.0.0/8'], ips: ['192.0.2.1'] },
  rules: [rule('first'), rule('second', { priority: 0 })],
  ...more,
});

/**
 * Writes a policy image with `PolicyWriter`, and reads the image as a service-plane thread does. `before` is
 * the previous policy of this thread. Returns the written policy and, as `there`, the read policy.
 */
function through(groups: readonly GroupInput[], before: Policy | null = null, mode = 'enforce') {
  const body = JSON.stringify({ name: 'ü', mode, policy: { default_policy: 'deny', source_groups: groups } });
  const context = { dns: true, servicePlane: true, fallback: 'deny', recordMode: 'enforce', form: 'envelope' } as const;
  const read = readText(body, { ...context, integrations: undefined, parseCertificate: () => undefined });
  if (!read.ok) throw new Error(JSON.stringify(read.problems));
  const { parts } = read.parsed;
  const texts = inEvaluationOrder(parts.groups).map(({ text }) => text ?? new Uint8Array(0));
  const policy = policyOf(parts, 'deny');
  return { policy, there: readPolicy(new PolicyWriter().write(policy, texts), before) };
}

/**
 * Returns a plain copy of a policy. The copy makes the groups parse their rules, which they do on first use.
 */
const whole = ({ default: byDefault, groups }: Policy) => ({
  default: byDefault,
  groups: groups.map(({ id, pointer, mode, sources, selectors, rules, defaultAction }) => ({
    ...{ id, pointer, mode, sources, selectors, rules, defaultAction },
  })),
});
const rulesOf = (policy: Policy, id: string) => policy.groups.find((candidate) => candidate.id === id)?.rules;

test('`readPolicy` returns the policy that `PolicyWriter` has written into shared memory, with the groups in the order of their priorities', () => {
  const intercept = { mode: 'intercept', http: { request: { path: { regex: '^/ä$' } } } };
  const groups = [
    group('later', { priority: 9, default_action: 'allow' }),
    group('Größe', { priority: 1, rules: [rule('r', { match: { proto: 'tcp', tls: intercept } })] }),
    group('empty', { priority: 5, rules: [] }),
  ];
  const { policy, there } = through(groups);
  expect(policy.groups.map(({ id }) => id)).toEqual(['Größe', 'empty', 'later']);
  expect(whole(there)).toEqual(whole(policy));
});

test('`readPolicy` reuses the rules that were parsed for the previous policy if the text of their group is unchanged', () => {
  const { there: before } = through([group('a'), group('b'), group('c')]);
  const kept = [rulesOf(before, 'a'), rulesOf(before, 'b')];
  const changed = group('b', { rules: [rule('third')] });
  const { policy, there } = through([group('new'), changed, group('a'), group('c')], before);
  expect(rulesOf(there, 'a')).toBe(kept[0]);
  expect(rulesOf(there, 'b')?.map(({ id }) => id)).toEqual(['third']);
  expect(whole(there).groups.map(({ id, rules }) => [id, rules.map((read) => read.id)])).toEqual(
    policy.groups.map(({ id, rules }) => [id, rules.map((read) => read.id)]),
  );
});

test('`readPolicy` parses a group again if its text is unchanged but the mode of the policy differs', () => {
  const { there: before } = through([group('a')]);
  expect(rulesOf(before, 'a')?.map(({ mode }) => mode)).toEqual(['enforce', 'enforce']);
  const { there } = through([group('a')], before, 'audit');
  expect(rulesOf(there, 'a')?.map(({ mode }) => mode)).toEqual(['audit', 'audit']);
});

test('`PolicyWriter` copies changed texts only, and copies all texts into one chunk when there would be more than 16 chunks', () => {
  const { policy } = through(Array.from({ length: 40 }, (_, index) => group(`g${index}`)));
  const textOf = (index: number, said: string) =>
    Buffer.from(JSON.stringify(group(`g${index}`, { rules: [rule(said)] })));
  let texts = policy.groups.map((_, index) => textOf(index, 'first'));
  const writer = new PolicyWriter();
  const written = (): readonly number[] => {
    const image = writer.write(policy, texts);
    const read = readPolicy(image, null);
    expect(read.groups.map(({ rules }) => rules[0]?.id)).toEqual(
      texts.map((text) => /"id":"(first|next)"/.exec(String(text))?.[1]),
    );
    return image.chunks.map(({ length }) => length);
  };
  const [all = 0] = written();
  expect(written()).toEqual([all]);
  for (let index = 0; index < 15; index++) {
    texts = texts.with(index, textOf(index, 'next'));
    expect(written()).toHaveLength(index + 2);
  }
  texts = texts.with(20, textOf(20, 'next'));
  const total = texts.reduce((sum, { length }) => sum + length, 0);
  expect(written()).toEqual([total]);
});
