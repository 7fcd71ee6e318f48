import type { Group, Policy } from '#contracts/policy/policy-model.js';
import type { Random } from '#test/seed.js';
import { generatePolicy } from './generate.js';

/**
 * Returns a copy of `policy` with one random change: one group is added, removed, moved, or gets other
 * sources, other rules or another default action.
 */
export function withChangedGroup(random: Random, policy: Policy): Policy {
  const { groups } = policy;
  const [fresh] = generatePolicy(random, { groups: 1, rules: 12 }).groups;
  const at = random.between(0, groups.length);
  const group = groups[at];
  if (group === undefined)
    return fresh === undefined ? policy : { ...policy, groups: [...groups, named(fresh, random)] };
  const put = (...written: Group[]): Policy => ({ ...policy, groups: groups.toSpliced(at, 1, ...written) });
  switch (random.between(0, 5)) {
    case 0:
      return put();
    case 1:
      return put(group, ...(fresh === undefined ? [] : [named(fresh, random)]));
    case 2:
      return put({ ...group, defaultAction: group.defaultAction === undefined ? 'allow' : undefined });
    case 3:
      return put({ ...group, sources: fresh?.sources ?? [] });
    case 4: {
      const others = groups.toSpliced(at, 1);
      return { ...policy, groups: others.toSpliced(random.between(0, others.length), 0, group) };
    }
    default:
      return put({ ...group, rules: fresh?.rules ?? [] });
  }
}

function named(group: Group, random: Random): Group {
  return { ...group, id: `put-${random.between(0, 1_000_000)}` };
}
