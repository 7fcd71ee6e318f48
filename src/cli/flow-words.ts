const PROTOCOLS = new Map([
  [1, 'icmp'],
  [6, 'tcp'],
  [17, 'udp'],
]);

export const protocolName = (number: number): string => PROTOCOLS.get(number) ?? String(number);

export const endpoint = (address: string, port: number | null | undefined): string =>
  port === null || port === undefined ? address : `${address}:${port}`;

type Decided = {
  readonly decided_by?: string | null | undefined;
  readonly source_group?: string | null | undefined;
  readonly rule?: string | null | undefined;
};

/**
 * Returns the rule or default that decided a flow or finding as text: `GROUP/RULE`, `GROUP (default)` or
 * `(policy_default)`.
 */
export function deciderOf({ decided_by: decided, source_group: group, rule }: Decided): string {
  if (group === null || group === undefined) return decided === null || decided === undefined ? '-' : `(${decided})`;
  return rule === null || rule === undefined ? `${group} (default)` : `${group}/${rule}`;
}
