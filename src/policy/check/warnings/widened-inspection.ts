import { itemAt } from '#arrays/read.js';
import type { Policy, Rule } from '#contracts/policy/policy-model.js';
import { covers, overlaps } from '#policy/model/rules/rule-coverage.js';

/**
 * A warning. `pointer` is the JSON pointer of an allow rule with TLS or HTTP matchers. `by` names the later
 * allow rule or default that passes the connections which the matchers exclude.
 */
export type Widened = { readonly pointer: string; readonly by: string };

const COMPARISONS = 1_000_000;

/**
 * Finds allow rules whose TLS or HTTP matchers have no effect. A later allow rule or the default of the group
 * passes all connections that the matchers exclude.
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
 * Whether a rule is an allow rule with TLS matchers that never denies a connection. Response matchers can
 * deny. Certificate matchers can deny a hidden certificate (D22a), unless `tls13_uninspectable` is `allow`.
 */
function isOnlyAFilter({ action, tls }: Rule): boolean {
  if (action !== 'allow' || tls === undefined) return false;
  const { http, server_dn, server_san, server_cn, fingerprint_sha256, trust_anchors_pem } = tls;
  const readsCertificate = [server_dn, server_san, server_cn, fingerprint_sha256, trust_anchors_pem].some(
    (matcher) => matcher !== undefined,
  );
  return http?.response === undefined && (!readsCertificate || tls.tls13_uninspectable === 'allow');
}
