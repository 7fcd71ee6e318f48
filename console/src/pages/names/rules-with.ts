import type { Schemas } from '../../api/client.js';

/** Returns the rules of a policy with the hostname pattern `pattern`, in the order of the policy. */
export function rulesWith(
  policy: Schemas['PolicyConfig'],
  pattern: string,
): readonly { group: string; rule: string }[] {
  const wanted = pattern.toLowerCase();
  return (policy.source_groups ?? []).flatMap(({ id: group, rules }) =>
    (rules ?? [])
      .filter(({ match }) => match.dns_hostname?.toLowerCase() === wanted)
      .map(({ id }) => ({ group, rule: id })),
  );
}
