import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { itemAt } from '#arrays/read.js';
import type { PolicyDiff } from '#contracts/analysis/policy-diff.js';
import type { PolicyLint } from '#contracts/analysis/policy-lint.js';
import { run } from '#test/cli/cli-run.js';
import { DUAL_OFFICE, dualOfficeAfter } from '../analysis/office.js';
import { createRig, type NodeRig } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('answers6', [], { dataplane: { ipv6: 'enforce', reverse_path: 'off' } });
  await rig.put(DUAL_OFFICE);
});
afterAll(() => rig?.remove());

const cli = async (...words: readonly string[]) =>
  run([...words, '--server', rig.node.url], { WEIR_TOKEN: await rig.node.token() });
const fileWith = (name: string, document: object): string => {
  const file = join(rig.node.folder, name);
  writeFileSync(file, JSON.stringify(document));
  return file;
};
/** The policy in which the office reaches SSH of the IPv6 servers. */
const withSsh = () =>
  dualOfficeAfter((draft) => {
    const match = { dst_cidrs: ['2001:db8:9::/64'], proto: 'tcp', dst_ports: [22] };
    itemAt(draft.source_groups, 1).rules?.push({ id: 'ssh', action: 'allow', match });
  });

test('`weir policy diff` and a dry run show the IPv6 flows that a file opens, and explain confirms each example', async () => {
  const { code, out } = await cli('policy', 'diff', '-f', fileWith('ssh.json', withSsh()));
  expect([code, out.split('\n').slice(0, 4)]).toEqual([
    3,
    [
      '18,446,744,073,709,551,360 sources of office gain 2001:db8:9::/64 tcp/22; no source loses a flow',
      'opens 2001:db8:1::/64 except 2001:db8:1::/120 → 2001:db8:9::/64 tcp/22',
      '  office/ssh added: before default_policy (deny), now office/ssh (allow)   2.2e43 flows',
      '  weir policy explain --src 2001:db8:1::101 --dst 2001:db8:9::1 --proto tcp --dst-port 22',
    ],
  ]);
  const dry = await rig.node.request('PUT', '/api/v1/policy?dry_run=true', withSsh());
  const { verdict, regions } = (dry.body as { readonly diff: PolicyDiff }).diff;
  expect([verdict, regions.length]).toEqual(['opens', 1]);
  const asked = { ...itemAt(regions, 0).example, policy: withSsh() };
  const { body } = await rig.node.request('POST', '/api/v1/policy/explain', asked);
  expect(body).toMatchObject({ decision: 'allow', source_group: 'office', rule: 'ssh' });
});

test('`weir policy ask` names the IPv6 sources of a service, and the rule that would let an IPv6 flow pass', async () => {
  const { out } = await cli('policy', 'ask', 'any', '2001:db8:3::7', 'tcp/445');
  expect(out.split('\n')[0]).toMatch(/^sometimes: .* allow from 2001:db8:1::\/64; /);
  const denied = await cli('policy', 'ask', '2001:db8:1::aaaa', '2001:db8:9::5', 'icmpv6/129', '--expect', 'always');
  expect([denied.code, denied.out.split('\n').slice(-3)]).toEqual([
    3,
    [
      'default_policy (deny) denies them; to let them pass, add to the end of office',
      '  {"id":"allow-asked","action":"allow","match":{"dst_cidrs":["2001:db8:9::5/128"],"proto":"icmpv6","icmp_types":[129]}}',
      '',
    ],
  ]);
  expect((await cli('policy', 'ask', 'office', '::/0', 'icmpv6/128', '--expect', 'always')).code).toBe(0);
  expect(await cli('policy', 'ask', '10.1.0.7', '2001:db8::1')).toMatchObject({
    code: 1,
    err: expect.stringContaining('of different IP families') as string,
  });
});

test('an assertion about IPv6 refuses the write that breaks it, and holds for the policy in force', async () => {
  const never = { from: ['2001:db8:1:0:8000::/65'], to: ['2001:db8:9::/64'], ports: [22] };
  const assertions = fileWith('assertions.json', { assertions: [{ id: 'no-ssh', never }] });
  expect((await cli('assertions', 'apply', '-f', assertions)).out).toMatch(/^holds +no-ssh$/m);
  const refused = await cli('policy', 'apply', '-f', fileWith('ssh.json', withSsh()));
  expect(refused.code).not.toBe(0);
  expect(refused.err).toContain('no-ssh: office/ssh passes 2001:db8:1:0:8000::/65 → 2001:db8:9::/64 tcp/22');
  expect((await cli('assertions', 'list')).out).toMatch(/no-ssh/);
  await cli('assertions', 'apply', '-f', fileWith('none.json', { assertions: [] }));
});

test('`weir policy lint` proposes the removal of a rule only if no flow of either family needs it', async () => {
  const document = dualOfficeAfter((draft) => {
    const rules = itemAt(draft.source_groups, 1).rules ?? [];
    const match = { proto: 'tcp', dst_ports: [443] };
    rules.push({ id: 'four', action: 'allow', match: { ...match, dst_cidrs: ['0.0.0.0/0'] } });
    rules.push({ id: 'six', action: 'deny', match: { dst_cidrs: ['::/0'] } });
    rules.push({ id: 'covered', action: 'allow', match: { proto: 47, dst_cidrs: ['2001:db8:7::/48'] } });
  });
  const { body } = await rig.node.request('POST', '/api/v1/policy/lint', {
    policy: { policy: document },
    checks: ['unreachable'],
  });
  expect((body as PolicyLint).findings.map(({ message }) => message)).toEqual([
    'no flow reaches office/four: office/web decides all its flows',
    'no flow reaches office/covered: office/six decides all its flows',
  ]);
});
