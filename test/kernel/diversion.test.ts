import { execFileSync } from 'node:child_process';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FAMILIES } from '#contracts/policy/policy-model.js';
import { diversionFaults, diversionStands, makeDiversion, removeDiversion } from '#dataplane/routes/divert.js';
import { topologyOfFile } from './topology-of-file.js';

const MASK = 0x00f0_0000;
const OWN = 'rule add pref 8353 fwmark 0x200000/0x200000 lookup 8353';
const INTERFACES = ['lan*', 'wan0'];

topologyOfFile('diversion');
beforeAll(() => {
  ip('route add default via 10.77.2.2 table 77');
  ip('route add throw default table 78');
  ip('-6 route add unreachable default table 77');
});
beforeEach(() => makeDiversion(MASK, FAMILIES));
afterEach(() => {
  removeDiversion();
  for (const family of ['-4', '-6']) {
    ip(`${family} rule flush`);
    ip(`${family} rule add pref 32766 lookup main`);
  }
});

const ip = (command: string): string => execFileSync('ip', command.split(' '), { encoding: 'utf8' });
const faults = (): string[] =>
  diversionFaults(MASK, INTERFACES, FAMILIES).map((text) => text.split(' precedes', 1)[0] ?? '');

describe('`diversionStands` and `makeDiversion`', () => {
  test('the routing that `makeDiversion` creates for redirected packets is complete, also with a further address or a blackhole route on the node', () => {
    for (const add of ['addr add 192.0.2.1/32 dev lo', 'route add blackhole 192.0.2.0/24']) {
      ip(add);
      expect(diversionStands(MASK, FAMILIES)).toBe(true);
      ip(add.replace(' add ', ' del '));
    }
  });

  test.each([
    ['the rule is missing', ['rule del pref 8353']],
    ['the route is missing', ['route flush table 8353']],
    ['another route is in its place', ['route flush table 8353', 'route add unreachable default table 8353']],
    ['the table has a route to another interface', ['route add 198.51.100.0/24 via 10.77.2.2 table 8353']],
    ['the table has another route for a TOS', ['route add default via 10.77.2.2 tos 4 table 8353']],
    [
      'the rule matches another mark',
      ['rule del pref 8353', 'rule add pref 8353 fwmark 0x400000/0x400000 lookup 8353'],
    ],
    [
      'the rule matches more mark bits',
      ['rule del pref 8353', 'rule add pref 8353 fwmark 0x200000/0xf00000 lookup 8353'],
    ],
    [
      'the rule selects another routing table',
      ['rule del pref 8353', 'rule add pref 8353 fwmark 0x200000/0x200000 lookup main'],
    ],
    ['the rule matches only one source', ['rule del pref 8353', `${OWN} from 10.77.1.0/24`]],
    ['the rule matches only one interface', ['rule del pref 8353', `${OWN} iif lan0`]],
    ['the rule matches only one protocol', ['rule del pref 8353', `${OWN} ipproto udp`]],
    ['the rule matches packets without the mark', ['rule del pref 8353', OWN.replace('pref', 'not pref')]],
    ['IPv6: the rule is missing', ['-6 rule del pref 8353']],
    ['IPv6: the route is missing', ['-6 route flush table 8353']],
    [
      'IPv6: the rule matches another mark',
      ['-6 rule del pref 8353', '-6 rule add pref 8353 fwmark 0x400000/0x400000 lookup 8353'],
    ],
    ['the rule ignores the default route', ['rule del pref 8353', `${OWN} suppress_prefixlength 0`]],
  ])(
    '`diversionStands` returns false if the routing of redirected packets is incomplete or wrong (%s), and `makeDiversion` repairs the routing of redirected packets',
    (_, commands) => {
      ip('addr add 192.0.2.1/32 dev lo');
      try {
        for (const command of commands) ip(command);
        expect(diversionStands(MASK, FAMILIES)).toBe(false);
        makeDiversion(MASK, FAMILIES);
        expect(diversionStands(MASK, FAMILIES)).toBe(true);
      } finally {
        ip('addr del 192.0.2.1/32 dev lo');
      }
    },
  );

  test('`makeDiversion` adds only one routing rule, however often it is called', () => {
    for (let round = 0; round < 3; round++) makeDiversion(MASK, FAMILIES);
    for (const family of ['-4', '-6']) expect(ip(`${family} rule show pref 8353`).trim().split('\n')).toHaveLength(1);
  });
});

describe('`diversionFaults`', () => {
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
    '-6 rule add pref 100 lookup 77',
    '-6 rule add pref 100 to 2001:db8::/32 lookup 77',
  ])(
    '`diversionFaults` reports a third-party routing rule with a lower preference number that can match redirected packets (command: %s)',
    (command) => {
      ip(command);
      expect(faults()).toEqual([command.startsWith('-6') ? 'ip -6 rule 100' : 'ip rule 100']);
      expect(diversionStands(MASK, FAMILIES)).toBe(true);
    },
  );

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
  ])(
    '`diversionFaults` does not report a routing rule that cannot affect redirected packets (command: %s)',
    (command) => {
      ip(command);
      expect(faults()).toEqual([]);
    },
  );

  test("`diversionFaults` reports a third-party routing rule that has the same preference as Weir's rule for redirected packets", () => {
    removeDiversion();
    ip('rule add pref 8353 lookup 77');
    makeDiversion(MASK, FAMILIES);
    expect(faults()).toEqual(['ip rule 8353']);
  });
});
