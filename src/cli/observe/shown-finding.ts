import { z } from 'zod';
import type { Style } from '#cli/output/style.js';
import { deciderOf, endpoint, ownedEndpoint, ownerSchema, protocolName } from './flow-words.js';

const text = z.string().nullable();
const number = z.number().nullable();
export const findingSchema = z.looseObject({
  finding_type: z.string(),
  source_group: text,
  rule: text,
  source_groups: z.array(z.string()).nullish(),
  src_ip: text,
  dst_ip: text,
  src_owner: ownerSchema,
  dst_owner: ownerSchema,
  dst_port: number,
  translation: z.object({ dst_ip: z.string(), dst_port: number }).nullish(),
  proto: number,
  hostname: text,
  sni: text,
  http: z.object({ method: z.string(), host: z.string(), path: z.string() }).nullish(),
  icmp_type: number,
  icmp_code: number,
  drop_reason: text,
  reason: text.optional(),
  effective_action: z.string(),
  first_seen: z.string(),
  last_seen: z.string(),
  count: z.number(),
});
export type Finding = z.infer<typeof findingSchema>;

export const FINDING_TITLES = [
  'LAST SEEN',
  'TYPE',
  'PASSED',
  'PROTO',
  'SOURCE',
  'DESTINATION',
  'BY',
  'REASON',
  'COUNT',
];

/** Returns the table cells of a finding. `time` is the text for the time when the finding was last seen. */
export function findingRow(finding: Finding, style: Style, time: string): string[] {
  const { effective_action: action, proto } = finding;
  return [
    style.dim(time),
    finding.finding_type,
    style.verdict(action, action === 'allow' ? 'yes' : 'no'),
    proto === null ? '-' : protocolName(proto),
    (finding.src_ip === null ? undefined : ownedEndpoint(finding.src_owner, finding.src_ip)) ??
      textOf(finding.actor) ??
      '-',
    destinationOf(finding),
    deciderOf({ ...finding, decided_by: textOf(finding.decided_by) }),
    finding.drop_reason ?? finding.reason ?? textOf(finding.operation) ?? '-',
    String(finding.count),
  ];
}

/**
 * Returns the destination of a finding as text: hostname and address. For a finding without a destination,
 * returns its field `target`.
 */
function destinationOf({
  dst_ip: address,
  dst_port: port,
  dst_owner: owner,
  hostname,
  sni,
  http,
  icmp_type: type,
  icmp_code: code,
  translation,
  ...more
}: Finding): string {
  const name = http == null ? (hostname ?? sni) : requestOf(http);
  const wire = translation == null ? '' : `, sent to ${endpoint(translation.dst_ip, translation.dst_port)}`;
  const at = address === null ? undefined : ownedEndpoint(owner, `${endpoint(address, port)}${wire}`);
  const icmp = type === null ? '' : ` type ${type} code ${code ?? 0}`;
  if (at === undefined) return name ?? textOf(more.target) ?? '-';
  return name === null ? `${at}${icmp}` : `${name} (${at})${icmp}`;
}

const requestOf = ({ method, host, path }: NonNullable<Finding['http']>): string => `${method} ${host}${path}`;
const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);

/**
 * Returns a key of the finding that is the same after the finding is seen again: all fields except count,
 * times and generation.
 */
export function identityOf({
  count: _,
  first_seen: __,
  last_seen: ___,
  generation: ____,
  ...identity
}: Finding): string {
  return JSON.stringify(identity);
}
