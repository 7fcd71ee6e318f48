import { readFileSync, writeFileSync } from 'node:fs';

const FOLDER = '/proc/sys/net/netfilter';
const PREFIX = 'nf_conntrack_tcp';
/**
 * Settings of conntrack. If they are on, conntrack accepts packets and RSTs outside of the TCP window that it
 * knows, and so translates them. Conntrack does not see the packets that the datapath translates, so its TCP
 * window is out of date.
 */
const SWITCHES = ['be_liberal', 'ignore_invalid_rst'] as const;
/**
 * Time-outs of conntrack for a connection whose last data seems to be unacknowledged or repeated. Conntrack
 * does not see each acknowledgment, so these time-outs must not be shorter than the time-out of an
 * established connection.
 */
const TIMES = ['timeout_unacknowledged', 'timeout_max_retrans'] as const;

const read = (name: string): number => Number(readFileSync(`${FOLDER}/${PREFIX}_${name}`, 'utf8'));
const established = (): number => read('timeout_established');

/**
 * Returns the first setting by which conntrack would reject valid TCP packets, with its value; null if there
 * is none.
 */
export function windowCheck(): string | null {
  const found = SWITCHES.find((name) => read(name) === 0) ?? TIMES.find((name) => read(name) < established());
  return found === undefined ? null : `net.netfilter.${PREFIX}_${found} is ${read(found)}`;
}

/**
 * Changes the settings so that conntrack rejects no valid TCP packet. Does nothing if the node may not change
 * the settings.
 */
export function endWindowChecks(): void {
  const write = (name: string, value: number): void => writeFileSync(`${FOLDER}/${PREFIX}_${name}`, `${value}`);
  try {
    for (const name of SWITCHES) if (read(name) === 0) write(name, 1);
    for (const name of TIMES) if (read(name) < established()) write(name, established());
  } catch {
    // Ignore the error: `windowCheck` still returns the setting, and with this reason the datapath forwards
    // through the network stack.
  }
}
