import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { itemAt } from '#arrays/read.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { PolicyDiff } from '#contracts/analysis/policy-diff.js';
import type { PolicyLint } from '#contracts/analysis/policy-lint.js';
import type { PolicyConfig } from '#contracts/policy/policy-document.js';
import { run } from '#test/cli/cli-run.js';
import { OFFICE, officeAfter } from '../analysis/office.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('analysis', [80], { dataplane: { reverse_path: 'off' } });
  await rig.put(OFFICE);
});
afterAll(() => rig?.remove());

const cli = async (words: readonly string[]) =>
  run([...words, '--server', rig.node.url], { WEIR_TOKEN: await rig.node.token() });
const fileWith = (document: PolicyConfig): string => {
  const file = join(rig.node.folder, 'draft.json');
  writeFileSync(file, JSON.stringify(document));
  return file;
};
const lockout = () => officeAfter((draft) => draft.source_groups.splice(0, 1));

test('`weir policy diff` shows which flows a policy file would close, and `weir policy explain` confirms each example flow', async () => {
  const file = fileWith(lockout());
  const { code, out } = await cli(['policy', 'diff', '-f', file]);
  expect(code).toBe(3);
  expect(out).toMatch(/^no source gains a flow; 8 sources of admins lose /);
  const { body } = await rig.node.request('POST', '/api/v1/policy/diff', { to: { policy: lockout() } });
  const { regions, verdict } = body as PolicyDiff;
  expect(verdict).toBe('closes');
  for (const { before, after, example } of regions) {
    const [old, next] = await Promise.all(
      [{}, { policy: lockout() }].map((policy) =>
        rig.node.request('POST', '/api/v1/policy/explain', { ...policy, ...example }),
      ),
    );
    const { source_group: group, rule, decision } = before;
    expect(old?.body).toMatchObject({ source_group: group, rule, decision });
    expect(next?.body).toMatchObject({ source_group: after.source_group, rule: after.rule, decision: after.decision });
  }
});

test('the dry runs of a policy write, of a group write and of a removal return the same diff as `POST /api/v1/policy/diff`', async () => {
  const timeless = ({ impact, ...diff }: PolicyDiff) => ({ ...diff, effects: impact?.effects });
  const diffTo = async (to: PolicyConfig) =>
    timeless((await rig.node.request('POST', '/api/v1/policy/diff', { to: { policy: to } })).body as PolicyDiff);
  const ofDryRun = ({ body }: { body: unknown }) => timeless((body as { diff: PolicyDiff }).diff);
  const whole = await rig.node.request('PUT', '/api/v1/policy?dry_run=true', lockout());
  expect(ofDryRun(whole)).toEqual(await diffTo(lockout()));

  const [record] = ((await rig.node.request('GET', '/api/v1/policies')).body as { items: { id: string }[] }).items;
  const path = `/api/v1/policies/${record?.id ?? ''}/source-groups`;
  const widened = officeAfter((draft) => {
    itemAt(draft.source_groups, 1).sources.cidrs = ['10.1.0.0/16'];
  });
  const group = itemAt(widened.source_groups ?? [], 1);
  const edited = await rig.node.request('PUT', `${path}/office?dry_run=true`, group);
  expect(ofDryRun(edited)).toEqual(await diffTo(widened));

  const removed = await rig.node.request('DELETE', `${path}/admins?dry_run=true`);
  expect(ofDryRun(removed)).toEqual(await diffTo(lockout()));
});

test('`weir policy diff --to` shows what a revision changed', async () => {
  await rig.put(lockout());
  await rig.put(OFFICE);
  const { code, out } = await cli(['policy', 'diff', '--to', '3']);
  expect([code, out.split(';')[0]]).toEqual([3, expect.stringMatching(/^8 sources of admins gain /) as string]);
  expect(await cli(['policy', 'diff', '--from', '1', '--to', '3'])).toMatchObject({
    code: 0,
    out: 'every flow is decided alike\n',
  });
});

test('`weir policy ask` shows the sources that can reach a service, the rule that denies a flow, and the rule that would allow it', async () => {
  expect((await cli(['policy', 'ask', 'any', '10.20.0.5', 'tcp/22'])).out).toMatch(/^sometimes: servers\/backup /);
  const { out, code } = await cli(['policy', 'ask', '10.1.0.77', '10.9.0.5', 'tcp/22', '--expect', 'always']);
  expect([code, out]).toEqual([
    3,
    expect.stringContaining(
      'default_policy (deny) denies them; to let them pass, add to the end of office\n',
    ) as string,
  ]);
  expect((await cli(['policy', 'ask', 'office', '10.3.0.0/24', '445', '--expect', 'always'])).code).toBe(0);
  expect(await cli(['policy', 'ask', 'nobody', '10.3.0.0/24'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('The policy has no source group with this id') as string,
  });
});

test('`weir policy diff` shows the faulty lines of a file that is not valid', async () => {
  const wrong = officeAfter((draft) => {
    itemAt(draft.source_groups, 1).sources.cidrs = ['10.1.0.0/33'];
  });
  const { code, err } = await cli(['policy', 'diff', '-f', fileWith(wrong)]);
  expect([code, err]).toEqual([1, expect.stringMatching(/draft\.json:1:\d+: Write an IPv4 network/) as string]);
});

test('`weir policy lint` finds rules of the active policy and of a stored one, and its edits change no flow', async () => {
  const document = officeAfter((draft) => {
    itemAt(draft.source_groups, 1).rules?.push({
      id: 'tls',
      action: 'allow',
      match: { proto: 'tcp', dst_ports: [443] },
    });
  });
  await rig.put(document);
  const { body } = await rig.node.request('POST', '/api/v1/policy/lint', { checks: ['unreachable'] });
  const { findings, together } = body as PolicyLint;
  expect(findings.map(({ rules, edit }) => [rules, edit])).toEqual([
    [['tls'], { edit: 'remove_rule', source_group: 'office', rule: 'tls' }],
  ]);
  const without = await rig.node.request('POST', '/api/v1/policy/diff', { to: { policy: OFFICE } });
  expect([together.verdict, (without.body as PolicyDiff).verdict]).toEqual(['equal', 'equal']);
  const { code, out } = await cli(['policy', 'lint']);
  expect([code, out.split('\n')[0]]).toEqual([
    3,
    'unreachable no flow reaches office/tls: office/web decides all its flows',
  ]);
  const draft = await rig.node.request('POST', '/api/v1/policy/lint', {
    policy: { policy: OFFICE },
    checks: ['unreachable', 'conflict'],
    limit: 1,
  });
  expect(draft.body).toMatchObject({ summary: 'nothing was found', complete: true, findings: [] });
  expect(await rig.node.request('POST', '/api/v1/policy/lint', { checks: ['dead'] })).toMatchObject({ status: 400 });
});

test('a dry run shows which recorded flows a change closes and opens, also after a restart, and for which period no flows were recorded', async () => {
  const rules = (denied: number) => [
    { id: 'no', action: 'deny', match: { proto: 'tcp', dst_ports: [denied] } } as const,
    { id: 'web', match: { proto: 'tcp' } },
  ];
  await rig.put(policyOf(rules(81)));
  expect(await rig.tcp(80)).toMatch(/^open/);
  expect(await rig.tcp(80)).toMatch(/^open/);
  expect(await rig.tcp(81)).not.toMatch(/^open/);
  const dryRun = async () => {
    const { body } = await rig.node.request('PUT', '/api/v1/policy?dry_run=true', policyOf(rules(80)));
    return (body as { diff: PolicyDiff }).diff.impact;
  };
  const seen = [
    ['closes', ADDRESSES.server, 80, 'allow', 'web', 'no'],
    ['opens', ADDRESSES.server, 81, 'deny', 'no', 'web'],
  ];
  const shown = async () =>
    (await dryRun())?.flows.map((flow) => [
      ...[flow.effect, flow.dst_ip, flow.dst_port, flow.last_verdict, flow.before.rule, flow.after.rule],
    ]);
  await expect.poll(shown).toEqual(seen);
  const before = await dryRun();
  expect(before?.effects.closes).toEqual({ flows: 1, connections: 2, depends: { flows: 0, connections: 0 } });
  const file = join(rig.node.folder, 'draft.json');
  writeFileSync(file, JSON.stringify(policyOf(rules(80))));
  const { out } = await cli(['policy', 'apply', '-f', file, '--dry-run']);
  expect(out).toMatch(
    /\nseen: closes 1 flow seen in the last \d+ (seconds|minutes) \(2 connections\), opens 1 flow \(\d+ attempts?\)\n/,
  );
  expect(out).toMatch(new RegExp(`\n  close ${ADDRESSES.client} → ${ADDRESSES.server} tcp/80   2 connections, last `));

  await rig.node.end('SIGTERM');
  await rig.node.restart();
  await rig.node.ready();
  expect(await shown()).toEqual(seen);
  expect((await dryRun())?.coverage.since).toBe(before?.coverage.since);

  await rig.node.request('PUT', '/api/v1/settings/performance-mode', { enabled: false });
  const off = await dryRun();
  expect([off?.coverage.recording, off?.summary]).toEqual([
    false,
    expect.stringContaining('flows are not recorded now, because performance mode is disabled') as string,
  ]);
});
