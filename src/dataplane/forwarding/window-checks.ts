import { readFileSync, writeFileSync } from 'node:fs';

const FOLDER = '/proc/sys/net/netfilter';
const PREFIX = 'nf_conntrack_tcp';
/**
 * The settings by which conntrack accepts packets, and RSTs, outside of the TCP window that it knows. It does
 * not see the packets that the datapath translates, and would not translate the later ones of a connection.
 */
const SWITCHES = ['be_liberal', 'ignore_invalid_rst'] as const;
/**
 * The times for which conntrack keeps a connection whose last data it calls unacknowledged or repeated. It
 * does not see each acknowledgment, so these times must not be shorter than that of another connection.
 */
const TIMES = ['timeout_unacknowledged', 'timeout_max_retrans'] as const;

const read = (name: string): number => Number(readFileSync(`${FOLDER}/${PREFIX}_${name}`, 'utf8'));
const established = (): number => read('timeout_established');

/** Returns a description of the first setting by which conntrack checks TCP packets; null without one. */
export function windowCheck(): string | null {
  const found = SWITCHES.find((name) => read(name) === 0) ?? TIMES.find((name) => read(name) < established());
  return found === undefined ? null : `net.netfilter.${PREFIX}_${found} is ${read(found)}`;
}

/** Ends the checks of TCP packets. Does nothing if the node may not change the settings. */
export function endWindowChecks(): void {
  const write = (name: string, value: number): void => writeFileSync(`${FOLDER}/${PREFIX}_${name}`, `${value}`);
  try {
    for (const name of SWITCHES) if (read(name) === 0) write(name, 1);
    for (const name of TIMES) if (read(name) < established()) write(name, established());
  } catch {
    // The packets take the network stack, and the reason names the setting.
  }
}
