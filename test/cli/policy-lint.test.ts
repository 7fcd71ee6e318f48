import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { PolicyLint } from '#contracts/analysis/policy-lint.js';
import { officeAfter } from '../analysis/office.js';
import { temporaryFolder } from '../store/temporary-folder.js';
import { run } from './cli-run.js';

const fileWith = (document: object): string => {
  const file = join(temporaryFolder(), 'office.json');
  writeFileSync(file, JSON.stringify(document));
  return file;
};
const document = officeAfter((draft) => {
  draft.source_groups[1]?.rules?.push(
    ...([
      { id: 'web-8080', action: 'allow', match: { proto: 'tcp', dst_ports: [8080] } },
      { id: 'mail', action: 'allow', match: { proto: 'tcp', dst_ports: ['25-26'], dst_cidrs: ['10.8.0.0/16'] } },
      { id: 'smtps', action: 'allow', match: { proto: 'tcp', dst_ports: [25], dst_cidrs: ['10.8.0.0/16'] } },
    ] as never[]),
  );
});

test('`weir policy lint -f` checks a file without a node, shows each finding with its edit, and exits with 3', async () => {
  expect(await run(['policy', 'lint', '-f', fileWith(document)], {})).toEqual({
    code: 3,
    err: '',
    out: [
      'unreachable no flow reaches office/smtps: office/no-smtp decides all its flows',
      '  remove office/smtps',
      'mergeable office/web and office/web-8080 can be one rule with more dst_ports',
      '  give office/web dst_ports: [80,443,8080] and remove web-8080',
      'conflict office/no-smtp (deny) decides flows that office/mail (allow) matches too: the order matters',
      '  if office/mail stood before no-smtp: 248 sources of office gain 10.8.0.0/16 tcp/25; no source loses a flow',
      '  weir policy explain --src 10.1.0.9 --dst 10.8.0.1 --proto tcp --dst-port 25',
      'found: 1 unreachable, 1 mergeable, 1 conflict',
      'all 2 edits that change nothing, together: every flow is decided alike',
      '',
    ].join('\n'),
  });
});

test('`weir policy lint -f` exits with 0 if a file has no finding of the checks', async () => {
  const words = ['policy', 'lint', '-f', fileWith(document), '--check', 'removable'];
  expect(await run(words, {})).toEqual({ code: 0, err: '', out: 'nothing was found\n' });
});

test('`weir policy lint -f -o json` prints the answer of the API', async () => {
  const { code, out } = await run(['policy', 'lint', '-f', fileWith(document), '-o', 'json'], {});
  const { findings, complete, together } = JSON.parse(out) as PolicyLint;
  expect([code, complete, findings.length, together.verdict]).toEqual([3, true, 3, 'equal']);
});

test.each<[words: readonly string[], message: string]>([
  [['--check', 'dead'], 'It must be one of unreachable, removable, mergeable, conflict'],
  [['office'], 'give a file or the name of a policy, not both'],
])('`weir policy lint -f FILE` refuses %j with the exit code 2', async (words, message) => {
  const { code, err } = await run(['policy', 'lint', '-f', fileWith(document), ...words], {});
  expect([code, err]).toEqual([2, expect.stringContaining(message) as string]);
});

test('`weir policy lint -f --ipv6` keeps a group that a Kubernetes selector can give IPv6 sources', async () => {
  const kubernetes = [{ integration: 'prod', pod_selector: { match_labels: { app: 'web' } } }];
  const file = fileWith({
    default_policy: 'allow',
    source_groups: [
      { id: 'all', mode: 'enforce', sources: { cidrs: ['0.0.0.0/0'] }, default_action: 'allow' },
      { id: 'pods', mode: 'enforce', sources: { kubernetes }, default_action: 'deny' },
    ],
  });
  const words = ['policy', 'lint', '-f', file, '--check', 'unreachable'];
  expect((await run(words, {})).out).toContain('remove the group pods');
  expect(await run([...words, '--ipv6'], {})).toEqual({ code: 0, err: '', out: 'nothing was found\n' });
});
