import type { Schemas } from '../../api/client.js';
import { protocol } from '../../format.js';
import type { Verdict } from '../../ui/parts.js';
import { deciderOf, ownerName } from '../traffic/message.js';

export type Finding = Schemas['Finding'];

/** The denied traffic to one destination, from all sources. */
export type Denied = {
  readonly key: string;
  readonly outcome: Verdict;
  readonly destination: string;
  readonly what: string;
  readonly decider: string;
  readonly count: number;
  readonly first: string;
  readonly last: string;
  readonly sources: readonly string[];
  /** The findings, with the latest first. */
  readonly findings: readonly Finding[];
};

/**
 * Groups findings by destination, service, rule or default that decided, and outcome. The group with the
 * latest finding is first.
 */
export function folded(findings: readonly Finding[]): Denied[] {
  const all = new Map<string, Denied>();
  for (const finding of findings) {
    const outcome: Verdict = finding.effective_action === 'allow' ? 'would_deny' : 'deny';
    const destination = destinationOf(finding);
    const what = whatOf(finding);
    const decider = deciderOf(finding);
    const key = [outcome, destination, what, decider].join('\n');
    const { count, first_seen: first, last_seen: last } = finding;
    const before = all.get(key);
    const source = sourceOf(finding);
    if (before === undefined)
      all.set(key, {
        ...{ key, outcome, destination, what, decider, count, first, last },
        ...{ sources: [source], findings: [finding] },
      });
    else
      all.set(key, {
        ...before,
        count: before.count + count,
        first: first < before.first ? first : before.first,
        last: last > before.last ? last : before.last,
        sources: before.sources.includes(source) ? before.sources : [...before.sources, source],
        findings: [...before.findings, finding],
      });
  }
  return [...all.values()]
    .map((each) => ({
      ...each,
      findings: each.findings.toSorted((one, other) => (one.last_seen < other.last_seen ? 1 : -1)),
    }))
    .sort((one, other) => (one.last < other.last ? 1 : -1));
}

export const sourceOf = ({ src_ip: address, src_owner: owner }: Finding): string => {
  const name = ownerName(owner);
  return name === null ? (address ?? 'unknown') : `${name} (${address})`;
};

function destinationOf({
  hostname,
  http,
  sni,
  dst_ip: address,
  dst_owner: owner,
  finding_type: type,
}: Finding): string {
  const name = type === 'dns_deny' ? hostname : (http?.host ?? sni ?? hostname ?? ownerName(owner));
  if (name == null) return address ?? 'unknown';
  return address === null || type === 'dns_deny' ? name : `${name} (${address})`;
}

function whatOf({
  finding_type: type,
  http,
  proto,
  dst_port: port,
  icmp_type,
  drop_reason: drop,
  reason,
}: Finding): string {
  const name = proto === null ? '' : protocol(proto);
  const base =
    type === 'dns_deny'
      ? 'lookup'
      : http !== null
        ? `${http.method} ${http.path}`
        : port !== null
          ? `${type === 'tls_deny' ? 'tls' : name} ${port}`
          : icmp_type !== null
            ? `${name} type ${icmp_type}`
            : name;
  const why = reason ?? (drop === null || drop === 'policy_deny' ? null : drop);
  return why === null ? base : `${base}, ${why.replaceAll('_', ' ')}`;
}

/** Returns all texts of a row in which the filter of the page searches, in lower case. */
export const textOf = ({ outcome, destination, what, decider, sources }: Denied): string =>
  [outcome.replace('_', ' '), destination, what, decider, ...sources].join(' ').toLowerCase();
