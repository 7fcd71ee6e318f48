import { itemAt } from '#arrays/read.js';
import type { Policy, Rule } from '#contracts/policy-model.js';
import { covers, overlaps } from '#policy/model/rule-coverage.js';

/**
 * `pointer` is an allow rule with TLS or HTTP matchers. `by` is the later allow that passes the connections
 * which the rule does not match.
 */
export type Widened = { readonly pointer: string; readonly by: string };

const COMPARISONS = 1_000_000;

/**
 * Finds allow rules whose TLS or HTTP matchers have no effect: a wider allow of the same group passes the
 * connections that the matchers exclude.
 */
export function widenedInspections({ groups }: Policy): Widened[] {
  const found: Widened[] = [];
  let comparisons = 0;
  for (const { rules, pointer, defaultAction } of groups) {
    for (const [place, rule] of rules.entries()) {
      if (!isOnlyAFilter(rule)) continue;
      let by: string | undefined;
      let ended = false;
      for (let at = place + 1; at < rules.length && !ended; at++) {
        if (++comparisons > COMPARISONS) return found;
        const later = itemAt(rules, at);
        if (later.action === 'deny') ended = overlaps(withoutName(later), withoutName(rule));
        else if (covers(later, rule)) {
          by = pointer + later.pointer;
          ended = true;
        }
      }
      if (!ended && defaultAction === 'allow') by = `the default of ${pointer}`;
      if (by !== undefined) found.push({ pointer: `${pointer}${rule.pointer}/match/tls`, by });
    }
  }
  return found;
}

const withoutName = (rule: Rule): Rule => ({ ...rule, hostname: undefined });

/**
 * Whether a rule can only allow connections. A rule that matches responses, or a certificate that may be
 * hidden (D22a), can also deny connections.
 */
function isOnlyAFilter({ action, tls }: Rule): boolean {
  if (action !== 'allow' || tls === undefined) return false;
  const { http, server_dn, server_san, server_cn, fingerprint_sha256, trust_anchors_pem } = tls;
  const readsCertificate = [server_dn, server_san, server_cn, fingerprint_sha256, trust_anchors_pem].some(
    (matcher) => matcher !== undefined,
  );
  return http?.response === undefined && (!readsCertificate || tls.tls13_uninspectable === 'allow');
}
