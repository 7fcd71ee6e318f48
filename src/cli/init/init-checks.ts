import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Folders that contain a folder for each interface of this network namespace. They are correct even if /sys
 * belongs to another namespace. The IPv6 folder is missing if the kernel has no IPv6.
 */
const SETTINGS = { ipv4: '/proc/sys/net/ipv4/conf', ipv6: '/proc/sys/net/ipv6/conf' } as const;
const NO_INTERFACE = ['all', 'default'];

/**
 * Returns one sentence for each reason why the interfaces cannot be policed: an interface does not exist, or
 * does not forward. A pattern such as `eth*` must match an interface that exists now.
 */
export function interfaceProblems(patterns: readonly string[]): string[] {
  const existing = interfacesIn(SETTINGS.ipv4);
  const found = new Map(patterns.map((pattern) => [pattern, existing.filter((name) => matches(pattern, name))]));
  const absent = patterns.filter((pattern) => found.get(pattern)?.length === 0);
  const present = [...new Set([...found.values()].flat())];
  const unforwarding = present.filter((name) => name !== 'lo' && !isBridgePort(name) && !forwards('ipv4', name));
  const others = existing.filter((name) => name !== 'lo').join(', ');
  return [
    ...absent.map((name) => `There is no interface ${name}: this machine has ${others === '' ? 'none' : others}.`),
    ...(present.includes('lo') ? ['The interface lo cannot be policed: no forwarded packet arrives by it.'] : []),
    ...(unforwarding.length === 0
      ? []
      : [
          `IPv4 forwarding is off on ${unforwarding.join(', ')}: run \`sysctl -w net.ipv4.ip_forward=1\`, and write net.ipv4.ip_forward=1 to a file in /etc/sysctl.d.`,
        ]),
  ];
}

/** Returns the interfaces with one of these names from which this machine forwards IPv6. */
export function forwardingIpv6(patterns: readonly string[]): string[] {
  if (!existsSync(SETTINGS.ipv6)) return [];
  return interfacesIn(SETTINGS.ipv6).filter(
    (name) => patterns.some((pattern) => matches(pattern, name)) && forwards('ipv6', name),
  );
}

const interfacesIn = (settings: string): string[] =>
  readdirSync(settings)
    .filter((name) => !NO_INTERFACE.includes(name))
    .sort();

/**
 * Returns the patterns in `before` that no pattern in `after` covers. A node with `after` no longer polices
 * their interfaces.
 */
export const uncovered = (before: readonly string[], after: readonly string[]): string[] =>
  before.filter((pattern) => !after.some((other) => other === pattern || matches(other, pattern)));

const matches = (pattern: string, name: string): boolean =>
  pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;

/** Returns whether the interface is a port of a bridge, which switches packets without IPv4 forwarding. */
const isBridgePort = (name: string): boolean => existsSync(join('/sys/class/net', name, 'brport'));

const forwards = (family: keyof typeof SETTINGS, name: string): boolean =>
  readFileSync(join(SETTINGS[family], name, 'forwarding'), 'utf8').trim() === '1';
