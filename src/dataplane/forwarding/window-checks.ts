import { readFileSync, writeFileSync } from 'node:fs';

/**
 * The settings by which conntrack accepts packets, and RSTs, outside of the TCP window that it knows. It does
 * not see the packets that the datapath translates, and would not translate the later ones of a connection.
 */
const SETTINGS = ['nf_conntrack_tcp_be_liberal', 'nf_conntrack_tcp_ignore_invalid_rst'] as const;
const pathOf = (name: string): string => `/proc/sys/net/netfilter/${name}`;

/** Returns a description of the first setting by which conntrack checks the TCP window; null without one. */
export function windowCheck(): string | null {
  const found = SETTINGS.find((name) => readFileSync(pathOf(name), 'utf8').trim() === '0');
  return found === undefined ? null : `net.netfilter.${found} is 0`;
}

/** Ends the checks of the TCP window. Does nothing if the node may not change the settings. */
export function endWindowChecks(): void {
  try {
    for (const name of SETTINGS) writeFileSync(pathOf(name), '1');
  } catch {
    // The packets take the network stack, and the reason names the setting.
  }
}
