import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { DUAL_OFFICE, OFFICE } from '../analysis/office.js';
import { temporaryFolder } from '../store/temporary-folder.js';
import { run } from './cli-run.js';

const fileWith = (name: string, text: string): string => {
  const file = join(temporaryFolder(), name);
  writeFileSync(file, text);
  return file;
};
const policyFile = () => fileWith('office.json', JSON.stringify(OFFICE));

const ASSERTIONS = `assertions:
  - id: dns
    always: {from: [10.1.0.0/24], to: [10.0.0.53], proto: udp, ports: [53]}
  - id: no <ssh>
    never: {from: [10.1.0.0/24], to: [10.9.0.0/24], ports: [22]}
`;

test('`weir policy test` checks assertions without a node, exits with 3 if one fails, and writes JUnit XML', async () => {
  const junit = join(temporaryFolder(), 'junit.xml');
  const words = ['policy', 'test', fileWith('a.yaml', ASSERTIONS), '--policy', policyFile(), '--junit', junit];
  expect(await run(words, {})).toEqual({
    code: 3,
    err: '',
    out: [
      'ok     dns',
      'failed no <ssh>: admins/all passes 10.1.0.0/29 → 10.9.0.0/24 tcp/22',
      '  10.1.0.0/29 → 10.9.0.0/24 tcp/22',
      '    admins/all (allow)   weir policy explain --src 10.1.0.1 --dst 10.9.0.1 --proto tcp --dst-port 22',
      '2 assertions, 1 failed',
      '',
    ].join('\n'),
  });
  const xml = readFileSync(junit, 'utf8');
  expect(xml).toContain('<testsuite name="weir policy test" tests="2" failures="1">');
  expect(xml).toContain('<testcase classname="weir policy" name="no &lt;ssh&gt;">');
});

test('`weir policy test` exits with 0 if the policy fulfils all assertions', async () => {
  const assertions = fileWith('dns.yaml', ASSERTIONS.split('\n').slice(0, 3).join('\n'));
  expect(await run(['policy', 'test', assertions, '--policy', policyFile()], {})).toMatchObject({
    code: 0,
    out: 'ok     dns\n1 assertion, 0 failed\n',
  });
});

test('`weir policy test` lists the problems of a file with assertions, with line and column', async () => {
  const wrong = fileWith('wrong.yaml', ASSERTIONS.replace('10.9.0.0/24', '10.9.0.0/44'));
  const { code, err } = await run(['policy', 'test', wrong, '--policy', policyFile()], {});
  expect([code, err]).toEqual([
    1,
    expect.stringMatching(/wrong\.yaml:5:\d+: This is neither an address nor a network/) as string,
  ]);
});

test('`weir policy test` compares with a policy file, and skips an assertion that needs the history of a node', async () => {
  const junit = join(temporaryFolder(), 'junit.xml');
  const former = fileWith('former.json', JSON.stringify({ ...OFFICE, source_groups: OFFICE.source_groups.slice(1) }));
  const list = fileWith(
    'since.yaml',
    `assertions:
  - {id: ratchet, opens_nothing_since: {file: ${former}}}
  - {id: since-12, opens_nothing_since: {revision: 12}}
`,
  );
  const { code, out } = await run(['policy', 'test', list, '--policy', policyFile(), '--junit', junit], {});
  expect([code, out.split('\n')]).toEqual([
    3,
    [
      expect.stringMatching(/^failed ratchet: admins\/all passes 10\.1\.0\.0\/29 → .*; .*former\.json denied them$/),
      ...Array.from({ length: 6 }, () => expect.any(String) as string),
      expect.stringMatching(/^ {2}and \d+ more regions$/),
      'skipped since-12: only a node has the revisions of a policy; `opens_nothing_since: {file: FILE}` compares with a policy file',
      '2 assertions, 1 failed, 1 skipped',
      '',
    ],
  ]);
  expect(readFileSync(junit, 'utf8')).toContain(
    '<testcase classname="weir policy" name="since-12">\n      <skipped message=',
  );
  const only = fileWith('only.yaml', 'assertions:\n  - {id: since-12, opens_nothing_since: {revision: 12}}\n');
  expect((await run(['policy', 'test', only, '--policy', policyFile()], {})).code).toBe(0);
});

const IPV6_ASSERTIONS = `assertions:
  - id: ssh6
    never: {from: ["2001:db8:1::/64"], to: ["2001:db8:9::/64"], ports: [22]}
  - id: ping6
    always: {from: {group: office}, to: ["::/0"], proto: icmpv6, icmp_types: [128]}
  - id: only4
    only: {from: [10.1.0.0/24, 10.9.0.0/24, "2001:db8:9::/64"], ports: [443]}
`;

test('`weir policy test` checks the IPv6 flows of a policy with IPv6 addresses', async () => {
  const dual = fileWith('dual.json', JSON.stringify(DUAL_OFFICE));
  expect(await run(['policy', 'test', fileWith('6.yaml', IPV6_ASSERTIONS), '--policy', dual], {})).toEqual({
    code: 3,
    err: '',
    out: [
      'failed ssh6: admins/all passes 2001:db8:1::/120 → 2001:db8:9::/64 tcp/22',
      '  2001:db8:1::/120 → 2001:db8:9::/64 tcp/22',
      '    admins/all (allow)   weir policy explain --src 2001:db8:1::1 --dst 2001:db8:9::1 --proto tcp --dst-port 22',
      'ok     ping6',
      'failed only4: office/web passes 2001:db8:1::/64 except 2001:db8:1::/120 → any IPv6 tcp/443, and 1 more region',
      '  2001:db8:1::/64 except 2001:db8:1::/120 → any IPv6 tcp/443',
      '    office/web (allow)   weir policy explain --src 2001:db8:1::101 --dst 2001:db8::1 --proto tcp --dst-port 443',
      '  2001:db8:1::/120 → any IPv6 tcp/443',
      '    admins/all (allow)   weir policy explain --src 2001:db8:1::1 --dst 2001:db8::1 --proto tcp --dst-port 443',
      '3 assertions, 2 failed',
      '',
    ].join('\n'),
  });
});

test('`weir policy test --ipv6` checks IPv6 flows for a policy without IPv6 addresses', async () => {
  const open = fileWith('open.json', JSON.stringify({ ...OFFICE, default_policy: 'allow' }));
  const never = fileWith('never.yaml', 'assertions: [{id: telnet, never: {to: ["::/0"], ports: [23]}}]');
  const test = (...words: readonly string[]) => run(['policy', 'test', never, '--policy', open, ...words], {});
  expect((await test()).err).toContain('Answers about IPv6 need dataplane.ipv6: enforce');
  expect(await test('--ipv6')).toMatchObject({
    code: 3,
    out: expect.stringContaining('failed telnet: default_policy passes any IPv6 → any IPv6 tcp/23\n') as string,
  });
});
