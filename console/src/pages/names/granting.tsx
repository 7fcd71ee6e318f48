import { api, bodyOf } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { full } from '../../format.js';
import { addressOf } from '../../router.js';
import { Drawer } from '../../ui/drawer.js';
import { Empty, Failure } from '../../ui/parts.js';
import { rulesWith } from './rules-with.js';

const MOST = 200;

/** Shows the rules of the active policy that match this hostname pattern. */
export function Granting({ pattern, onClose }: { readonly pattern: string; readonly onClose: () => void }) {
  const policy = usePolled((signal) => bodyOf(api.GET('/api/v1/policy', { signal })), null, pattern);
  const rules = policy.data.value === null ? null : rulesWith(policy.data.value, pattern);
  return (
    <Drawer title={<>Rules with {pattern}</>} onClose={onClose}>
      <Failure failure={policy.failure.value} />
      {rules === null ? (
        <p aria-busy="true">…</p>
      ) : rules.length === 0 ? (
        <Empty>No rule of the active policy has this pattern any more. Its grants go on until they expire.</Empty>
      ) : (
        <ul class="plain-list">
          {rules.slice(0, MOST).map(({ group, rule }) => (
            <li key={`${group} ${rule}`}>
              <a href={addressOf('policy', { group, rule })}>
                {group} / {rule}
              </a>
            </li>
          ))}
          {rules.length > MOST && <li class="muted">and {full(rules.length - MOST)} more</li>}
        </ul>
      )}
    </Drawer>
  );
}
