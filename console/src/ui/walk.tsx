import type { Schemas } from '../api/client.js';
import { type AskedPolicy, policyIdOf } from '../asked-policy.js';
import { addressOf } from '../router.js';
import type { Verdict } from './parts.js';

type Explained = Schemas['Explained'];

export const verdictOf = ({ decision, effective_action: action }: Explained): Verdict =>
  decision === 'allow' ? 'allow' : action === 'allow' ? 'would_deny' : 'deny';

/** Lists the groups and rules in the order in which the node evaluates them, up to the one that decides. */
export function Walk({ explained, of = '' }: { readonly explained: Explained; readonly of?: AskedPolicy }) {
  const groups: { readonly id: string | null; readonly steps: Explained['walk'] }[] = [];
  for (const step of explained.walk) {
    const last = groups.at(-1);
    if (last !== undefined && last.id === step.source_group)
      groups[groups.length - 1] = { ...last, steps: [...last.steps, step] };
    else groups.push({ id: step.source_group, steps: [step] });
  }
  return (
    <ol class="walk">
      {groups.map(({ id, steps }, at) => (
        <li key={`${id} ${at}`} class="walk-group">
          <span class="walk-name">{id ?? 'the policy'}</span>
          <ol>
            {steps.map(({ rule, matched, why }) => (
              <li key={rule ?? 'default'} class={matched ? `matched ${verdictOf(explained)}` : ''}>
                <strong>
                  {rule === null ? (
                    'default'
                  ) : (
                    <a href={addressOf('policy', { id: policyIdOf(of), group: id ?? '', rule })}>{rule}</a>
                  )}
                </strong>{' '}
                <span class="muted">{why}</span>
              </li>
            ))}
          </ol>
        </li>
      ))}
      {explained.walk_omitted > 0 && <li class="muted">{explained.walk_omitted} further rules did not match.</li>}
    </ol>
  );
}
