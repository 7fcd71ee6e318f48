import { describe, expect, test } from 'vitest';
import type { EnvelopeMode, Form, SourceGroupConfig } from '#contracts/policy-document.js';
import type { HeldPolicy } from '#policy/check/group-write.js';
import { type ReadPolicy, readPolicy } from '#policy/check/read-policy.js';
import { Random, seedOf } from '#test/seed.js';
import { legible } from './held.js';

const around = {
  integrations: new Set(['prod']),
  parseCertificate: () => undefined,
  dns: true,
  servicePlane: false,
  fallback: 'deny',
} as const;

type Shape = { readonly form: Form; readonly mode: EnvelopeMode; readonly space: string };

function bodyOf(groups: readonly unknown[], { form, mode, space }: Shape): Uint8Array {
  const policy = { default_policy: 'deny', source_groups: groups };
  const document = form === 'envelope' ? { mode, name: 'päng', policy } : policy;
  return new TextEncoder().encode(JSON.stringify(document, null, space));
}

function groupOf(id: string, form: Form, random: Random): SourceGroupConfig {
  return {
    id,
    ...(form === 'singleton' ? { mode: random.pick(['audit', 'enforce'] as const) } : {}),
    ...(random.chance(0.2) ? { priority: random.below(4) } : {}),
    sources: {
      cidrs: [`10.${random.below(4)}.0.0/${random.pick([8, 16, 24])}`],
      ...(random.chance(0.2) ? { kubernetes: [{ integration: 'prod', node_selector: {} }] } : {}),
    },
    rules: Array.from({ length: random.below(4) }, (_, index) => ({
      id: `r${index}ü`,
      action: random.pick(['allow', 'deny']),
      match: { proto: 'tcp', dst_ports: [random.between(1, 4)] },
    })),
  };
}

/** What may happen to the groups of a policy between two writes, faults included. */
function changed(groups: readonly unknown[], form: Form, random: Random): unknown[] {
  const place = random.below(groups.length + 1);
  const fresh = groupOf(`g${random.below(12)}`, form, random);
  switch (random.below(8)) {
    case 0:
      return groups.toSpliced(place, 1);
    case 1:
      return groups.toSpliced(place, 2);
    case 2:
      return groups.toSpliced(place, 0, fresh);
    case 3:
      return groups.toSpliced(place, 0, groups[random.below(Math.max(1, groups.length))] ?? fresh);
    case 4:
      return groups.toReversed();
    case 5:
      return groups.toSpliced(place, 1, random.pick<unknown>([null, 7, {}, { ...fresh, rules: [{ id: '' }] }]));
    default:
      return groups.toSpliced(place, 1, fresh);
  }
}

const told = (read: ReadPolicy): unknown =>
  read.ok ? { ...read, policyJson: new TextDecoder().decode(read.policyJson), held: legible(read.held) } : read;
const isRead = (read: ReadPolicy): read is Extract<ReadPolicy, { ok: true }> => read.ok;

describe('a policy that was read before', () => {
  const seed = seedOf(77_003);

  test('changes nothing of what is said of a body', () => {
    let readable = 0;
    let refused = 0;
    for (let round = 0; round < 60; round++) {
      const random = new Random(seed + round * 6007);
      let shape: Shape = { form: random.pick(['envelope', 'singleton'] as const), mode: 'enforce', space: '' };
      let groups: unknown[] = [];
      let held: HeldPolicy | undefined;
      for (let step = 0; step < 25; step++) {
        if (random.chance(0.05)) shape = { ...shape, mode: random.pick(['audit', 'enforce'] as const) };
        if (random.chance(0.05)) shape = { ...shape, space: random.pick([' ', '\n']) };
        if (random.chance(0.03)) shape = { ...shape, form: shape.form === 'envelope' ? 'singleton' : 'envelope' };
        const next = changed(groups, shape.form, random);
        const whole = bodyOf(next, shape);
        const body = random.chance(0.1) ? whole.subarray(0, random.below(whole.length)) : whole;
        const integrations = random.chance(0.1) ? new Set<string>() : around.integrations;
        const context = { ...around, integrations, form: shape.form, recordMode: shape.mode };
        const alone = readPolicy(body, context);
        const known = readPolicy(body, { ...context, known: held?.parts });
        expect(told(known)).toEqual(told(alone));
        if (isRead(known)) {
          readable++;
          held = known.held;
          groups = next;
        } else {
          refused++;
        }
      }
    }
    console.log(`known groups: ${readable} bodies read, ${refused} refused, seed ${seed}`);
    expect(Math.min(readable, refused)).toBeGreaterThan(100);
  });

  test('lends its groups where their text is the same', () => {
    const random = new Random(seed);
    const groups = Array.from({ length: 6 }, (_, index) => groupOf(`g${index}`, 'singleton', random));
    const shape: Shape = { form: 'singleton', mode: 'enforce', space: '' };
    const context = { ...around, form: 'singleton', recordMode: 'enforce' } as const;
    const before = readPolicy(bodyOf(groups, shape), context);
    if (!isRead(before)) throw new Error(JSON.stringify(before.problems));
    const fresh = groupOf('new', 'singleton', random);
    const next = [...groups.slice(0, 2), fresh, ...groups.slice(3, 4), ...groups.slice(5)];
    const after = readPolicy(bodyOf(next, shape), { ...context, known: before.held.parts });
    if (!isRead(after)) throw new Error(JSON.stringify(after.problems));
    const rulesOf = ({ held }: { held: HeldPolicy }, place: number) => held.parts.groups[place]?.group.rules;
    const lent = [0, 1, 2, 3, 4].map((place) =>
      before.held.parts.groups.findIndex(({ group }) => group.rules === rulesOf(after, place)),
    );
    expect(lent).toEqual([0, 1, -1, 3, 5]);
    expect(after.held.parts.groups.map(({ group }) => group.pointer)).toEqual(
      next.map((_, place) => `/source_groups/${place}`),
    );
  });
});
