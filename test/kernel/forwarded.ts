import { readFileSync } from 'node:fs';

/** Returns the number of packets that the network stack of this thread's namespace has forwarded. */
export function forwarded(): number {
  const [names = [], values = []] = readFileSync('/proc/thread-self/net/snmp', 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('Ip:'))
    .map((line) => line.split(' '));
  return Number(values[names.indexOf('ForwDatagrams')]);
}
