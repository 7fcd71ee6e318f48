import type { PolicyConfig } from '#contracts/policy/policy-document.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { normalise } from '../policy/sample.js';

/** A policy with administrators, an office and servers, in singleton form. */
export const OFFICE = {
  default_policy: 'deny',
  source_groups: [
    {
      id: 'admins',
      mode: 'enforce',
      sources: { cidrs: ['10.1.0.0/29'] },
      rules: [{ id: 'all', action: 'allow', match: {} }],
    },
    {
      id: 'office',
      mode: 'enforce',
      sources: { cidrs: ['10.1.0.0/24'] },
      rules: [
        { id: 'no-smtp', action: 'deny', match: { proto: 'tcp', dst_ports: [25] } },
        { id: 'files', action: 'allow', match: { dst_cidrs: ['10.3.0.0/24'], proto: 'tcp', dst_ports: [445] } },
        { id: 'web', action: 'allow', match: { proto: 'tcp', dst_ports: [80, 443] } },
        { id: 'api', action: 'allow', match: { dns_hostname: 'api.example.com', proto: 'tcp', dst_ports: [8443] } },
        { id: 'dns', action: 'allow', match: { dst_ips: ['10.0.0.53'], proto: 'udp', dst_ports: [53] } },
      ],
    },
    {
      id: 'servers',
      mode: 'enforce',
      sources: { cidrs: ['10.9.0.0/24'] },
      rules: [{ id: 'backup', action: 'allow', match: { dst_cidrs: ['10.20.0.0/24'] } }],
      default_action: 'deny',
    },
  ],
} as const satisfies PolicyConfig;

type Changeable<T> = T extends readonly (infer Item)[]
  ? Changeable<Item>[]
  : T extends object
    ? { -readonly [Key in keyof T]: Changeable<T[Key]> }
    : T;
export type Draft = Changeable<PolicyConfig> & {
  source_groups: Changeable<NonNullable<PolicyConfig['source_groups']>>;
};

/** Returns the office policy after an edit of its document. */
export function officeAfter(edit: (draft: Draft) => void): PolicyConfig {
  const draft = structuredClone(OFFICE) as unknown as Draft;
  edit(draft);
  return draft;
}

export const modelOf = (document: PolicyConfig): Policy =>
  normalise(document, { form: 'singleton', mode: 'enforce', fallback: 'deny' });

/** The office policy with sources and destinations of both families. */
export const DUAL_OFFICE = officeAfter(({ source_groups: [admins, office, servers] }) => {
  admins?.sources.cidrs?.push('2001:db8:1::/120');
  office?.sources.cidrs?.push('2001:db8:1::/64');
  servers?.sources.cidrs?.push('2001:db8:9::/64');
  for (const { id, match } of [...(office?.rules ?? []), ...(servers?.rules ?? [])]) {
    if (id === 'files') match.dst_cidrs?.push('2001:db8:3::/64');
    if (id === 'backup') match.dst_cidrs?.push('2001:db8:20::/64');
    if (id === 'dns') match.dst_ips?.push('2001:db8::53');
  }
  office?.rules?.push({ id: 'ping', action: 'allow', match: { proto: 'icmpv6', icmp_types: [128] } });
});

/** Returns the office policy of both families after an edit of its document. */
export function dualOfficeAfter(edit: (draft: Draft) => void): PolicyConfig {
  const draft = structuredClone(DUAL_OFFICE) as Draft;
  edit(draft);
  return draft;
}

/** Returns the model of a document on a node that enforces IPv6 policies. */
export const dualModelOf = (document: PolicyConfig): Policy =>
  normalise(document, { form: 'singleton', mode: 'enforce', fallback: 'deny', ipv6: true });
