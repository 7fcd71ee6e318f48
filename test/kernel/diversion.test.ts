import { execFileSync } from 'node:child_process';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createTopology, type Topology } from '#cli/topology.js';
import { diversionFaults, diversionStands, makeDiversion, removeDiversion } from '#dataplane/routes/divert.js';
import { enterNamespace } from './namespace.js';

const MASK = 0x00f0_0000;
const OWN = 'rule add pref 8353 fwmark 0x200000/0x200000 lookup 8353';
const INTERFACES = ['lan*', 'wan0'];

let topology: Topology;
let leave: () => void;
beforeAll(async () => {
  topology = await createTopology('diversion');
  leave = enterNamespace(topology.node.name);
  ip('route add default via 10.77.2.2 table 77');
  ip('route add throw default table 78');
}, 60_000);
afterAll(async () => {
  leave();
  await topology.remove();
});
beforeEach(() => makeDiversion(MASK));
afterEach(() => {
  removeDiversion();
  ip('rule flush');
  ip('rule add pref 32766 lookup main');
});

const ip = (command: string): string => execFileSync('ip', command.split(' '), { encoding: 'utf8' });
const faults = (): string[] => diversionFaults(MASK, INTERFACES).map((text) => text.split(' ').slice(0, 3).join(' '));

describe('diversionStands', () => {
  test('is true after makeDiversion, whatever addresses and routes the node has', () => {
    for (const add of ['addr add 192.0.2.1/32 dev lo', 'route add blackhole 192.0.2.0/24']) {
      ip(add);
      expect(diversionStands(MASK)).toBe(true);
      ip(add.replace(' add ', ' del '));
    }
  });

  test.each([
    ['the rule is not there', ['rule del pref 8353']],
    ['the route is not there', ['route flush table 8353']],
    ['the route is another', ['route flush table 8353', 'route add unreachable default table 8353']],
    ['a route beside it leads elsewhere', ['route add 198.51.100.0/24 via 10.77.2.2 table 8353']],
    ['a route of another TOS leads elsewhere', ['route add default via 10.77.2.2 tos 4 table 8353']],
    [
      'the rule asks for another mark',
      ['rule del pref 8353', 'rule add pref 8353 fwmark 0x400000/0x400000 lookup 8353'],
    ],
    [
      'the rule asks for other bits too',
      ['rule del pref 8353', 'rule add pref 8353 fwmark 0x200000/0xf00000 lookup 8353'],
    ],
    [
      'the rule leads to another table',
      ['rule del pref 8353', 'rule add pref 8353 fwmark 0x200000/0x200000 lookup main'],
    ],
    ['the rule asks for a source', ['rule del pref 8353', `${OWN} from 10.77.1.0/24`]],
    ['the rule asks for an interface', ['rule del pref 8353', `${OWN} iif lan0`]],
    ['the rule asks for a protocol', ['rule del pref 8353', `${OWN} ipproto udp`]],
    ['the rule takes all but the mark', ['rule del pref 8353', OWN.replace('pref', 'not pref')]],
    ['the rule leaves the default route out', ['rule del pref 8353', `${OWN} suppress_prefixlength 0`]],
  ])('is false while %s, and makeDiversion repairs it', (_, commands) => {
    ip('addr add 192.0.2.1/32 dev lo');
    try {
      for (const command of commands) ip(command);
      expect(diversionStands(MASK)).toBe(false);
      makeDiversion(MASK);
      expect(diversionStands(MASK)).toBe(true);
    } finally {
      ip('addr del 192.0.2.1/32 dev lo');
    }
  });

  test('needs one rule only, however often makeDiversion is called', () => {
    for (let round = 0; round < 3; round++) makeDiversion(MASK);
    expect(ip('-4 rule show pref 8353').trim().split('\n')).toHaveLength(1);
  });
});

describe('diversionFaults', () => {
  test.each([
    'rule add pref 100 fwmark 0x200000/0x200000 lookup main',
    'rule add pref 100 fwmark 0x200000/0xf00000 lookup 77',
    'rule add pref 100 fwmark 0x1/0x1 lookup 77',
    'rule add pref 100 lookup 77',
    'rule add pref 100 from 10.77.1.0/24 lookup 77',
    'rule add pref 100 to 198.51.100.0/24 lookup 77',
    'rule add pref 100 iif lan0 lookup 77',
    'rule add pref 100 iif lan9 lookup 77',
    'rule add pref 100 ipproto tcp dport 443 lookup 77',
    'rule add pref 100 not fwmark 0x400000/0x400000 lookup 77',
    'rule add pref 100 blackhole',
    'rule add pref 100 prohibit',
    'rule add pref 100 goto 32766',
  ])('reports an earlier rule: %s', (command) => {
    ip(command);
    expect(faults()).toEqual(['ip rule 100']);
    expect(diversionStands(MASK)).toBe(true);
  });

  test.each([
    'rule add pref 100 fwmark 0x400000/0x400000 lookup 77',
    'rule add pref 100 fwmark 0x80000/0xff0000 lookup 77',
    'rule add pref 100 fwmark 0x300000/0x300000 lookup 77',
    'rule add pref 100 lookup local',
    'rule add pref 100 lookup 79',
    'rule add pref 100 lookup 78',
    'rule add pref 100 iif lo lookup 77',
    'rule add pref 100 iif other0 lookup 77',
    'rule add pref 100 oif wan0 lookup 77',
    'rule add pref 100 ipproto icmp lookup 77',
    'rule add pref 100 goto 8353',
    'rule add pref 100 goto 9999',
    'rule add pref 100 nop',
    'rule add pref 9000 lookup 77',
  ])('does not report: %s', (command) => {
    ip(command);
    expect(faults()).toEqual([]);
  });

  test('reports another rule with the same preference', () => {
    removeDiversion();
    ip('rule add pref 8353 lookup 77');
    makeDiversion(MASK);
    expect(faults()).toEqual(['ip rule 8353']);
  });
});
