import { describe, expect, test } from 'vitest';
import { familyOf, formatAddress } from '#addresses/ip-address.js';
import { judged } from '#analysis/answer/assertions.js';
import { affectedAssertions, type CheckOptions, checkChange } from '#analysis/answer/changed-assertions.js';
import { IPV4, IPV6 } from '#analysis/engine/address-space.js';
import { compare } from '#analysis/engine/comparison.js';
import { passes } from '#analysis/engine/decision-lists.js';
import type { Assertion } from '#contracts/analysis/assertion.js';
import { isIcmp, PORT_PROTOCOLS, type Policy } from '#contracts/policy/policy-model.js';
import { Random, seedOf } from '#test/seed.js';
import { packetsOf } from './check-comparison.js';
import { edited, editedPairs, randomPolicy } from './edits.js';
import { type Draft, modelOf, OFFICE, officeAfter } from './office.js';

const PAIRS = Number(process.env.WEIR_PAIRS ?? 150);
const STEPS = 2_000_000;

const SPACES = [IPV4, IPV6];
const FAMILIES = ['ipv4', 'ipv6'] as const;

const options = (formerOf: CheckOptions['formerOf'] = () => null): CheckOptions => ({
  spaces: SPACES,
  steps: STEPS,
  limit: 3,
  formerOf,
  isOver: () => false,
});

function randomAssertions(random: Random, policies: readonly Policy[]): Assertion[] {
  const packets = policies.map((policy) => {
    const ofFamilies = SPACES.map((space) => packetsOf(random, policy, space).edge);
    return () => random.pick(ofFamilies)();
  });
  return Array.from({ length: 12 }, (_, at): Assertion => {
    const packet = (packets[at % 2] as () => ReturnType<(typeof packets)[0]>)();
    const { source, destination, protocol, destinationPort } = packet;
    const groups = policies.flatMap((policy) => policy.groups.map(({ id }) => id));
    const named = groups[random.below(Math.max(1, groups.length))];
    const [shortest, lengths] = familyOf(source) === 'ipv4' ? [8, 25] : [16, 113];
    const length = () => shortest + random.below(lengths);
    const asked = {
      from: named !== undefined && random.chance(0.4) ? { group: named } : [`${formatAddress(source)}/${length()}`],
      ...(random.chance(0.7) ? { to: [`${formatAddress(destination)}/${length()}`] } : {}),
      ...(random.chance(0.7) && !isIcmp(protocol) ? { proto: protocol } : {}),
      ...(random.chance(0.4) && PORT_PROTOCOLS.includes(protocol) ? { proto: protocol, ports: [destinationPort] } : {}),
    };
    const judge = random.chance(0.3) ? ('enforced' as const) : ('effective' as const);
    if (at === 0) return { id: 'ratchet', judge, opens_nothing_since: { revision: 1 } };
    const id = String(at);
    return random.chance(0.4)
      ? { id, judge, never: asked }
      : random.chance(0.6)
        ? { id, judge, always: asked }
        : { id, judge, only: asked };
  });
}

describe('the assertions that a change affects', () => {
  test('an assertion that a change does not affect has the same result before and after it', () => {
    const seed = seedOf(5);
    const counts = { affected: 0, others: 0, changed: 0 };
    for (let pair = 0; pair < PAIRS; pair++) {
      const random = new Random(seed * 1_000_003 + pair);
      const former = randomPolicy(random, { families: FAMILIES });
      const before = random.chance(0.5) ? former : edited(random, former, { families: FAMILIES });
      const after = edited(random, before, { families: FAMILIES });
      const assertions = randomAssertions(random, [before, after]);
      const found = new Set(affectedAssertions(before, after, assertions, { spaces: SPACES, steps: STEPS }));
      for (const assertion of assertions) {
        const [one, other] = [before, after].map(
          (policy) =>
            judged(
              assertion,
              policy,
              options(() => former),
            ).result,
        );
        if (one !== other) counts.changed++;
        if (found.has(assertion)) counts.affected++;
        else {
          counts.others++;
          // A change that opens no flow can only repair `opens_nothing_since`.
          if (assertion.id === 'ratchet' && one === 'broken') continue;
          expect(other, JSON.stringify({ pair, assertion })).toBe(one);
        }
      }
    }
    expect(counts.changed).toBeGreaterThan(PAIRS / 5);
    expect(counts.others).toBeGreaterThan(PAIRS);
  });

  test('`opens_nothing_since` is broken exactly if the comparison with the former policy opens a flow', () => {
    const seed = seedOf(6);
    const counts = { holds: 0, broken: 0 };
    for (const { pair, before: former, after: policy } of editedPairs(seed, PAIRS, { families: FAMILIES })) {
      const opens = compare(former, policy, { spaces: SPACES }).regions.some(({ changes }) =>
        changes.some(
          ({ attribute, from, to }) => attribute === 'verdict' && !passes(from.outcome) && passes(to.outcome),
        ),
      );
      const ratchet: Assertion = { id: 'ratchet', opens_nothing_since: { revision: 1 } };
      const { result, regions } = judged(
        ratchet,
        policy,
        options(() => former),
      );
      expect(result, String(pair)).toBe(opens ? 'broken' : 'holds');
      for (const { decider } of regions) expect(decider.decision === 'allow' || decider.mode === 'audit').toBe(true);
      counts[opens ? 'broken' : 'holds']++;
    }
    expect(Math.min(counts.holds, counts.broken)).toBeGreaterThan(PAIRS / 10);
  });
});

describe('the check of a change', () => {
  const ssh: Assertion = { id: 'no-ssh', never: { from: ['10.1.0.64/26'], to: ['10.9.0.0/24'], ports: [22] } };
  const before = modelOf(OFFICE);
  const withSsh = (draft: Draft) => {
    draft.source_groups[1]?.rules?.push({ id: 'ssh', action: 'allow', match: { proto: 'tcp', dst_ports: [22] } });
  };
  const check = (after: Policy, assertions: readonly Assertion[], of = before, given = options()) =>
    checkChange(of, after, affectedAssertions(of, after, assertions, given), given);

  test('an assertion that a change breaks has a region, an example flow and its former result', () => {
    expect(check(modelOf(officeAfter(withSsh)), [ssh])).toMatchObject([
      {
        id: 'no-ssh',
        result: 'broken',
        before: 'holds',
        message: 'office/ssh passes 10.1.0.64/26 → 10.9.0.0/24 tcp/22',
        regions: [{ example: { src: '10.1.0.65', dst: '10.9.0.1', proto: 6, dst_port: 22 } }],
      },
    ]);
  });

  test('the check of a change reports an assertion that was broken before the change with the former result "broken"', () => {
    const wrong = modelOf(officeAfter(withSsh));
    const wider = officeAfter((draft) => {
      withSsh(draft);
      draft.source_groups[1]?.rules?.push({ id: 'ssh', action: 'allow', match: { proto: 'tcp', dst_ports: [22, 23] } });
    });
    const never: Assertion = { id: 'no-login', never: { from: ['10.1.0.64/26'], ports: ['22-23'] } };
    expect(check(modelOf(wider), [never], wrong)).toMatchObject([
      { id: 'no-login', result: 'broken', before: 'broken' },
    ]);
  });

  test('a change of other flows affects no assertion', () => {
    const other = officeAfter((draft) => {
      draft.source_groups[1]?.rules?.push({ id: 'mail', action: 'allow', match: { proto: 'tcp', dst_ports: [993] } });
    });
    expect(affectedAssertions(before, modelOf(other), [ssh], options())).toEqual([]);
  });

  test('a source that a group gains is checked, also if no flow changes', () => {
    const admins: Assertion = {
      id: 'servers',
      never: { from: { group: 'servers' }, to: ['10.3.0.0/24'], ports: [445] },
    };
    const after = officeAfter((draft) => {
      draft.source_groups[2]?.sources.cidrs?.push('10.1.0.0/24');
    });
    expect(check(modelOf(after), [admins])).toMatchObject([{ id: 'servers', result: 'broken', before: 'holds' }]);
  });

  test('the removal of the source group of an assertion breaks it', () => {
    const servers: Assertion = { id: 'servers', never: { from: { group: 'servers' }, to: ['10.3.0.0/24'] } };
    const after = officeAfter((draft) => {
      draft.source_groups.pop();
    });
    expect(check(modelOf(after), [servers])).toMatchObject([
      { result: 'broken', before: 'holds', message: 'the policy has no source group servers', regions: [] },
    ]);
  });

  test('`opens_nothing_since` names the rule that passes, and the former revision', () => {
    const ratchet: Assertion = { id: 'ratchet', opens_nothing_since: { revision: 12, policy: 'office' } };
    const found = check(
      modelOf(officeAfter(withSsh)),
      [ratchet],
      before,
      options(() => before),
    );
    expect(found).toMatchObject([
      {
        result: 'broken',
        before: 'holds',
        message: 'office/ssh passes 10.1.0.0/24 except 10.1.0.0/29 → any tcp/22; revision 12 of office denied them',
        regions: [{ decider: { decision: 'allow', mode: 'enforce', source_group: 'office', rule: 'ssh' } }],
      },
    ]);
    const lost = check(modelOf(officeAfter(withSsh)), [ratchet]);
    expect(lost).toMatchObject([
      { result: 'unknown', before: 'unknown', message: 'revision 12 of office is not in the history' },
    ]);
  });

  test('an assertion that is not checked for lack of time has the result "unknown", and so has its former result', () => {
    const found = check(modelOf(officeAfter(withSsh)), [ssh], before, { ...options(), isOver: () => true });
    expect(found).toMatchObject([{ id: 'no-ssh', result: 'unknown', before: null }]);
  });

  test('at the limit of steps, an assertion is unknown before and after the change', () => {
    const found = check(modelOf(officeAfter(withSsh)), [ssh], before, { ...options(), steps: 20 });
    expect(found).toMatchObject([{ id: 'no-ssh', result: 'unknown', before: 'unknown' }]);
  });
});
