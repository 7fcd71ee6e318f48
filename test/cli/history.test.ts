import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { type Answer, clockAt, ok, RECORD, run, serverThatAnswers, TOKEN } from './cli-run.js';

const record = { ...RECORD, revision: 4, updated_at: '2026-02-05T19:57:00.000Z' };
const NONE = {
  via: null,
  comment: null,
  generation: null,
  source_group: null,
  of_revision: null,
  size: null,
  bytes: null,
  activated: null,
  removed: null,
};
const counts = (added: number, changed: number, removed: number) => ({ added, changed, removed });
const ROWS = [
  {
    ...record,
    ...NONE,
    via: 'rollback',
    of_revision: 2,
    generation: 9,
    size: { groups: counts(1, 0, 0), rules: counts(12, 0, 0), other: true },
    activated: { by: 'bob', at: record.updated_at, comment: null, overrides: ['no-ssh'], generation: 11 },
  },
  {
    ...record,
    ...NONE,
    revision: 3,
    active: false,
    via: 'group_write',
    source_group: 'lan',
    generation: 8,
    comment: 'CHG-1042\u202e',
    size: { groups: counts(0, 1, 0), rules: counts(2, 1, 3), other: false },
  },
  {
    ...record,
    ...NONE,
    revision: 2,
    active: false,
    via: 'write',
    size: { groups: counts(0, 0, 0), rules: counts(0, 0, 0), other: false },
  },
  { ...record, ...NONE, revision: 1, active: false },
];
const page = (items: readonly unknown[], next: string | null = null) => ok({ items, next_cursor: next });
const config = { default_policy: 'deny', source_groups: [{ id: 'lan', sources: { ips: ['10.0.0.7'] } }] };
const written = ok(
  { ...record, warnings: [], proof: null, policy: config },
  { etag: '"p-1.4"', 'weir-generation': '9' },
);

describe('weir policy history', () => {
  it('`weir policy history` prints a table of the revisions of the active policy, the newest first', async () => {
    clockAt('2026-02-05T20:00:00Z');
    const { url, asked } = await serverThatAnswers(ok({ items: [record] }), page(ROWS));
    expect(await run(['policy', 'history', '--server', url], TOKEN)).toEqual({
      code: 0,
      out: `REVISION  ACTIVE  GENERATION  WRITTEN    BY     VIA              CHANGE                       COMMENT
4         active  11          3 min ago  alice  rollback of 2    groups +1, rules +12, other  (overrides no-ssh)
3         -       8           3 min ago  alice  group_write lan  groups ~1, rules +2 ~1 -3    CHG-1042\\u202e
2         -       -           3 min ago  alice  write            nothing                      -
1         -       -           3 min ago  alice  -                -                            -
`,
      err: '',
    });
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/policies', '/api/v1/policies/p-1/history?limit=20']);
  });

  it('`weir policy history` with a name or --id reads the pages of this policy up to --limit, and prints them as JSON', async () => {
    const { url, asked } = await serverThatAnswers(
      ok({ items: [record] }),
      page(ROWS.slice(0, 3), '2'),
      page(ROWS.slice(3)),
    );
    const words = ['policy', 'history', '--server', url, '-o', 'json', '--limit', '600'];
    expect(JSON.parse((await run([...words, 'Office'], TOKEN)).out)).toMatchObject({
      id: 'p-1',
      items: [{ revision: 4 }, { revision: 3 }, { revision: 2 }, { revision: 1 }],
    });
    expect(asked.map(({ path }) => path).slice(1)).toEqual([
      '/api/v1/policies/p-1/history?limit=500',
      '/api/v1/policies/p-1/history?limit=500&cursor=2',
    ]);
    await run([...words, '--id', 'gone'], TOKEN);
    expect(asked.at(-1)?.path).toBe('/api/v1/policies/gone/history?limit=500');
  });

  it('`weir policy history` says that there are earlier revisions, and that the policy was deleted', async () => {
    clockAt('2026-02-05T20:00:00Z');
    const removed = { by: 'ann', at: '2026-02-05T19:59:00.000Z', comment: 'moved to home', generation: 12 };
    const { url } = await serverThatAnswers(page([{ ...ROWS[3], removed }], '1'));
    const { out, err } = await run(['policy', 'history', '--id', 'p-1', '--server', url], TOKEN);
    expect(out).toMatch(/^deleted 1 min ago by ann: moved to home\n\nREVISION/);
    expect(err).toBe('there are earlier revisions: give --limit with more than 20\n');
  });

  it('`weir policy history` without a name exits with 2 while no policy is active', async () => {
    const { url } = await serverThatAnswers(ok({ items: [] }));
    const { code, err } = await run(['policy', 'history', '--server', url], TOKEN);
    expect([code, err]).toEqual([
      2,
      'weir: no policy is active: name a policy\n  → `weir policy list` shows the stored policies\n',
    ]);
  });
});

describe('weir policy get --revision', () => {
  it('`weir policy get --revision` prints an earlier revision as a document that `weir policy apply` accepts', async () => {
    const { url, asked } = await serverThatAnswers(ok({ items: [record] }), ok({ ...ROWS[1], policy: config }));
    const { code, out } = await run(['policy', 'get', '--revision', '3', '--server', url], TOKEN);
    expect([code, parse(out)]).toEqual([0, { mode: 'enforce', name: 'office', policy: config }]);
    expect(out).toContain('# office: revision 3, not active,');
    expect(asked.at(-1)?.path).toBe('/api/v1/policies/p-1/history/3');
    expect((await run(['policy', 'get', '--revision', '0', '--server', url], TOKEN)).code).toBe(2);
  });
});

describe('weir policy rollback', () => {
  it('`weir policy rollback` writes an earlier revision of the active policy again, and prints the new one', async () => {
    const { url, asked } = await serverThatAnswers(ok({ items: [record] }), written);
    expect(await run(['policy', 'rollback', '2', '-m', 'DNS was gone', '--server', url], TOKEN)).toEqual({
      code: 0,
      out: 'office (enforce), revision 4: in force, generation 9\nETag "p-1.4"\n',
      err: '',
    });
    expect(asked.at(-1)).toMatchObject({
      method: 'POST',
      path: '/api/v1/policies/p-1/rollback?comment=DNS%20was%20gone',
      body: '{"revision":2}',
      ifMatch: undefined,
    });
  });

  it('`weir policy rollback` sends all flags of a policy write', async () => {
    const { url, asked } = await serverThatAnswers(written);
    const flags = ['--no-activate', '--no-rehearse', '--wait', 'all', '--confirm-within', '60s', '--if-match', 'p-1.3'];
    expect((await run(['policy', 'rollback', '2', '--id', 'p-1', ...flags, '--server', url], TOKEN)).code).toBe(0);
    expect(asked).toMatchObject([
      {
        path: '/api/v1/policies/p-1/rollback?activate=false&rehearse=false&wait=all&confirm_within=60000ms',
        ifMatch: '"p-1.3"',
      },
    ]);
  });

  it('`weir policy rollback --dry-run` prints that nothing was changed', async () => {
    const dry = ok({ ...record, warnings: [], dry_run: true, program_lines: 9, proof: null, policy: config });
    const { url, asked } = await serverThatAnswers(dry);
    const { out } = await run(['policy', 'rollback', '2', '--id', 'p-1', '--dry-run', '--server', url], TOKEN);
    expect(out).toBe('office (enforce), revision 4: valid; nothing was changed\n');
    expect(asked[0]?.path).toBe('/api/v1/policies/p-1/rollback?dry_run=true');
  });

  it.each([[[]], [['x']], [['0']]])('`weir policy rollback` exits with 2 for the arguments %j', async (words) => {
    const { url, asked } = await serverThatAnswers(written);
    expect((await run(['policy', 'rollback', ...words, '--server', url], TOKEN)).code).toBe(2);
    expect(asked).toEqual([]);
  });
});

describe('-m, --comment', () => {
  const ended = ok({ pending: null, reverted: null, ended: 9 });

  it.each<[readonly string[], Answer, string]>([
    [['apply', '--replace', '-f', '-'], written, '/api/v1/policies/by-name/office?comment=a%26b%20%E2%82%AC'],
    [['activate', '--id', 'p-1'], written, '/api/v1/policies/p-1/activate?comment=a%26b%20%E2%82%AC'],
    [['delete', '--id', 'p-1'], { status: 204, body: undefined }, '/api/v1/policies/p-1?comment=a%26b%20%E2%82%AC'],
    [['revert'], ended, '/api/v1/policy/pending/revert?comment=a%26b%20%E2%82%AC'],
  ])('`weir policy %j` sends the comment of -m', async ([name = '', ...more], answer, path) => {
    const read = name === 'activate' ? ok({ items: [record] }) : ok({ ...record, policy: config });
    const answers: [Answer, ...Answer[]] = name === 'apply' || name === 'revert' ? [answer] : [read, answer];
    const { url, asked } = await serverThatAnswers(...answers);
    const input = JSON.stringify({ mode: 'enforce', name: 'office', policy: config });
    const words = ['policy', name, ...more, '-m', 'a&b €', '--server', url];
    expect(await run(words, TOKEN, { input })).toMatchObject({ code: 0 });
    expect(asked.at(-1)?.path).toBe(path);
  });

  it('the error for a comment that the node refuses names the flag `--comment`', async () => {
    const message = 'Must be 1 to 500 printable characters on one line.';
    const problems = [{ pointer: '?comment', code: 'invalid_parameter', message }];
    const body = { type: 'urn:weir:error:invalid_query', error: `?comment: ${message}`, problems };
    const { url } = await serverThatAnswers({ status: 400, body });
    const { code, err } = await run(['policy', 'revert', '-m', '', '--server', url], TOKEN);
    expect([code, err.split('\n')[0]]).toEqual([2, `weir: --comment: ${message}`]);
  });
});

describe('weir policy diff between revisions', () => {
  const revision = (number: number, ips: readonly string[], mode = 'enforce') =>
    ok({ ...ROWS[1], revision: number, mode, policy: { source_groups: [{ id: 'lan', sources: { ips } }] } });
  const words = ['policy', 'diff', '--text', '--id', 'p-1'];

  it('`weir policy diff --from --to` prints one line per change between two revisions, and exits with 3', async () => {
    const { url, asked } = await serverThatAnswers(revision(3, ['10.0.0.8'], 'audit'), revision(1, ['10.0.0.7']));
    expect(await run([...words, '--from', '1', '--to', '3', '--server', url], TOKEN)).toEqual({
      code: 3,
      out: 'mode: enforce → audit\n~ group lan\n    mode: enforce → audit\n    sources.ips: -10.0.0.7 +10.0.0.8\n',
      err: '',
    });
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/policies/p-1/history/3', '/api/v1/policies/p-1/history/1']);
  });

  it('`weir policy diff --to` compares a revision with the one before it, and exits with 0 if both have the same content', async () => {
    const { url, asked } = await serverThatAnswers(revision(3, ['10.0.0.7']), revision(2, ['10.0.0.7']));
    expect(await run([...words, '--to', '3', '--server', url], TOKEN)).toEqual({
      code: 0,
      out: 'revision 3 of office has the same content as revision 2\n',
      err: '',
    });
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/policies/p-1/history/3', '/api/v1/policies/p-1/history/2']);
  });

  it('`weir policy diff --from` compares the present policy, or a file, with a revision', async () => {
    const present = ok({ ...record, policy: config });
    const { url, asked } = await serverThatAnswers(present, ok({ ...ROWS[1], policy: config }));
    const { out } = await run([...words, '--from', '3', '-o', 'json', '--server', url], TOKEN);
    expect(JSON.parse(out)).toEqual({
      compared_with: 'office',
      from_revision: 3,
      to_revision: 4,
      same: true,
      fields: [],
      groups: [],
    });
    const file = join(temporaryFolder(), 'policy.yaml');
    writeFileSync(file, JSON.stringify({ mode: 'enforce', name: 'office', policy: config }));
    expect((await run([...words, '--from', '3', '-f', file, '--server', url], TOKEN)).code).toBe(0);
    expect(asked.map(({ path }) => path)).toEqual([
      '/api/v1/policies/p-1',
      '/api/v1/policies/p-1/history/3',
      '/api/v1/policies/p-1/history/3',
    ]);
  });

  it.each([
    [[], 'give the policy to compare with: --file, --from or --to'],
    [['--to', '1'], 'revision 1 is the first one: there is none before it'],
    [['--to', '1', '-f', 'x'], "weir: option '--to <revision>' cannot be used with option '-f, --file <file>'"],
  ])('`weir policy diff` exits with 2 for the flags %j', async (flags, message) => {
    const { url } = await serverThatAnswers(revision(1, ['10.0.0.7']));
    const { code, err } = await run([...words, ...flags, '--server', url], TOKEN);
    expect([code, err]).toEqual([2, expect.stringContaining(message)]);
  });
});
