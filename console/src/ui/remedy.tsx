import type { Schemas } from '../api/client.js';
import { type AskedPolicy, policyIdOf } from '../asked-policy.js';
import { addressOf } from '../router.js';
import { RuleName } from './regions.js';

type Obstacle = Schemas['PolicyAnswer']['obstacles'][number];

type Props = {
  readonly obstacle: Obstacle;
  /** Addresses and networks for a new source group, if no group contains the source. */
  readonly sources: readonly string[];
  readonly of: AskedPolicy;
};

/**
 * Shows the smallest change that the node proposes to allow denied flows, with a link that inserts it into
 * the editor.
 */
export function Remedy({ obstacle: { remedy, decider }, sources, of }: Props) {
  if (remedy === null) return null;
  const place =
    remedy.source_group === null
      ? `in a new source group for ${sources.join(', ')}`
      : remedy.before === null
        ? `at the end of ${remedy.source_group}`
        : `in ${remedy.source_group}, before ${remedy.before}`;
  return (
    <>
      <p>
        {decider.rule === null ? (
          `The default of ${decider.source_group ?? 'the policy'}`
        ) : (
          <>
            The rule <RuleName group={decider.source_group} rule={decider.rule} of={of} />
          </>
        )}{' '}
        stands in the way. This rule {place} lets the flow pass
        {remedy.source_group === null ? '' : `, for all sources of ${remedy.source_group}`}:
      </p>
      <pre class="code">{JSON.stringify(remedy.rule, null, 2)}</pre>
      <p class="actions">
        <a
          class="button primary"
          href={addressOf('policy', {
            id: policyIdOf(of),
            propose: JSON.stringify(remedy),
            src: remedy.source_group === null ? sources.join(',') : undefined,
          })}
        >
          Review this change
        </a>
        {remedy.source_group !== null && (
          <a
            class="button"
            href={addressOf('policy', {
              id: policyIdOf(of),
              propose: JSON.stringify({ ...remedy, source_group: null, before: remedy.source_group }),
              src: sources.join(','),
            })}
          >
            Only for {sources.join(', ')}
          </a>
        )}
      </p>
    </>
  );
}
