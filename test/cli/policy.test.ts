import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { type Answer, run, serverThatAnswers } from './rig.js';

const TOKEN = { WEIR_TOKEN: 't' };
const ok = (body: unknown, headers: Record<string, string> = {}): Answer => ({ status: 200, body, headers });
const record = {
  id: 'p-1',
  name: 'office',
  form: 'envelope',
  mode: 'enforce',
  revision: 3,
  created_at: '2026-01-31T12:00:00.000Z',
  updated_at: '2026-02-01T08:30:00.000Z',
  updated_by: 'alice',
  active: true,
};
const spare = { ...record, id: 'p-2', name: null, form: 'singleton', mode: 'audit', active: false };
const proof = { classes: 6, checked: 24, complete: true };
const group = { id: 'lan', sources: { ips: ['10.0.0.7'] } };
const config = { default_policy: 'deny', source_groups: [group] };
const envelope = { mode: 'enforce', name: 'office', policy: config };

function fileWith(content: unknown): string {
  const file = join(temporaryFolder(), 'policy.yaml');
  writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
  return file;
}

describe('weir policy list', () => {
  it('is a table with the active one marked', async () => {
    const { url } = await serverThatAnswers(ok({ items: [record, spare] }));
    expect(await run(['policy', 'list', '--server', url], TOKEN)).toEqual({
      code: 0,
      out: `NAME    MODE     ACTIVE  REVISION  FORM       UPDATED                   BY     ID
office  enforce  active  3         envelope   2026-02-01T08:30:00.000Z  alice  p-1
-       audit    -       3         singleton  2026-02-01T08:30:00.000Z  alice  p-2
`,
      err: '',
    });
    const coloured = await run(['policy', 'list', '--server', url], TOKEN, { colours: true });
    expect(coloured.out).toContain('enforce  \u001b[32mactive\u001b[39m  3 ');
  });
});

describe('weir policy get', () => {
  it('is what apply takes, with the ETag in a comment', async () => {
    const { url, asked } = await serverThatAnswers(ok({ items: [spare, record] }), ok({ ...record, policy: config }));
    const { code, out, err } = await run(['policy', 'get', '--server', url], TOKEN);
    expect({ code, err, document: parse(out) }).toEqual({ code: 0, err: '', document: envelope });
    expect(out.split('\n').slice(0, 2)).toEqual([
      '# office: revision 3, active, written 2026-02-01T08:30:00.000Z by alice',
      '# ETag: "p-1.3"',
    ]);
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/policies', '/api/v1/policies/p-1']);
  });

  it('is the singleton form where that was written, by name or id, as JSON', async () => {
    const { url, asked } = await serverThatAnswers(ok({ ...spare, policy: config }));
    const words = ['policy', 'get', '--server', url, '--output', 'json'];
    expect(JSON.parse((await run([...words, '--name', 'a/b'], TOKEN)).out)).toEqual(config);
    expect(JSON.parse((await run([...words, '--id', 'p-2'], TOKEN)).out)).toEqual(config);
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/policies/by-name/a%2Fb', '/api/v1/policies/p-2']);
    expect((await run([...words, '--id', 'p-2', '--name', 'x'], TOKEN)).code).toBe(2);
  });

  it('is an empty policy while none is active', async () => {
    const { url } = await serverThatAnswers(ok({ items: [] }));
    expect(await run(['policy', 'get', '--server', url], TOKEN)).toEqual({
      code: 0,
      out: '{}\n',
      err: 'no policy is active: policy.fallback decides\n',
    });
  });
});

describe('weir policy apply', () => {
  const warning = { pointer: '/policy/source_groups/0', code: 'shadowed', message: 'It never matches.' };
  const written = { ...record, warnings: [warning], proof, policy: config };
  const headers = { etag: '"p-1.3"', 'weir-generation': '8' };

  it('puts an envelope under its name, and says its warnings with their lines', async () => {
    const { url, asked } = await serverThatAnswers(ok(written, headers));
    const file = fileWith('mode: enforce\nname: office\npolicy:\n  source_groups:\n    - id: lan\n');
    expect(await run(['policy', 'apply', '-f', file, '--server', url], TOKEN)).toEqual({
      code: 0,
      out: 'office (enforce), revision 3: in force, generation 8\nETag "p-1.3"\nproved by 24 packets of 6 classes\n',
      err: `warning: ${file}:5:7: It never matches. (/policy/source_groups/0) [shadowed]\n`,
    });
    expect(asked.map(({ method, path, body }) => [method, path, JSON.parse(body)])).toEqual([
      [
        'PUT',
        '/api/v1/policies/by-name/office',
        { mode: 'enforce', name: 'office', policy: { source_groups: [{ id: 'lan' }] } },
      ],
    ]);
  });

  it('sends JSON as it is, from standard input, with another name and mode where they are given', async () => {
    const { url, asked } = await serverThatAnswers(ok({ ...written, warnings: [] }, headers));
    const input = JSON.stringify(envelope, null, 1);
    const words = ['policy', 'apply', '-f', '-', '--server', url, '--output', 'json'];
    const { out, err } = await run(words, TOKEN, { input });
    const { warnings: _, proof: __, policy: ___, created_at: ____, ...shown } = written;
    expect({ err, applied: JSON.parse(out) }).toEqual({
      err: '',
      applied: { record: shown, dry_run: false, generation: 8, etag: '"p-1.3"', warnings: [], proof },
    });
    await run([...words, '--name', 'home', '--mode', 'audit', '--if-match', 'p-1.2', '--no-activate'], TOKEN, {
      input,
    });
    expect(asked[0]?.body).toBe(input);
    expect([asked[1]?.path, JSON.parse(asked[1]?.body ?? '')]).toEqual([
      '/api/v1/policies/by-name/home?activate=false',
      { ...envelope, name: 'home', mode: 'audit' },
    ]);
    expect(asked.map(({ ifMatch }) => ifMatch)).toEqual([undefined, '"p-1.2"']);
  });

  it('puts the singleton form as the active policy, and asks for the sentences of its warnings', async () => {
    const active = { ...record, form: 'singleton' };
    const warned = { ...warning, pointer: '/source_groups/0' };
    const { url, asked } = await serverThatAnswers(
      ok(config, { ...headers, 'weir-warnings': 'shadowed, activity_taken' }),
      ok({ items: [spare, active] }),
      ok({ ...active, dry_run: true, warnings: [warned], program_lines: 9, proof, policy: config }),
    );
    const file = fileWith(config);
    expect(await run(['policy', 'apply', '-f', file, '--server', url], TOKEN)).toEqual({
      code: 0,
      out: 'office (enforce), revision 3: in force, generation 8\nETag "p-1.3"\n',
      err:
        `warning: ${file}:1:43: It never matches. (/source_groups/0) [shadowed]\n` +
        `warning: ${file}:1:1: See docs/errors.md. [activity_taken]\n`,
    });
    expect(asked.map(({ method, path }) => `${method} ${path}`)).toEqual([
      'PUT /api/v1/policy',
      'GET /api/v1/policies',
      'PUT /api/v1/policy?dry_run=true',
    ]);
  });

  it('puts a policy without modes of groups in an envelope of a name and a mode', async () => {
    const { url, asked } = await serverThatAnswers(ok({ ...written, warnings: [] }, headers));
    const words = ['policy', 'apply', '-f', fileWith(config), '--server', url];
    expect((await run([...words, '--name', 'home', '--mode', 'audit'], TOKEN)).code).toBe(0);
    expect(asked.map(({ path, body }) => [path, JSON.parse(body)])).toEqual([
      ['/api/v1/policies/by-name/home', { mode: 'audit', name: 'home', policy: config }],
    ]);
    expect((await run([...words, '--name', 'home'], TOKEN)).err).toContain('→ give --mode too, or neither');
  });

  it('tries without changing anything', async () => {
    const answer = { ...written, warnings: [], dry_run: true, program_lines: 9 };
    const { url, asked } = await serverThatAnswers(ok(answer));
    const { code, out } = await run(['policy', 'apply', '-f', fileWith(envelope), '--dry-run', '--server', url], TOKEN);
    expect([code, out]).toEqual([
      0,
      'office (enforce), revision 3: nothing is wrong with it, and nothing was changed\nproved by 24 packets of 6 classes\n',
    ]);
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/policies/by-name/office?dry_run=true']);
  });

  it('shows every problem with its line and its pointer', async () => {
    const problems = [
      {
        pointer: '/source_groups/0/rules/1/match/dst_prots',
        code: 'unknown_field',
        message: 'There is no such field.',
      },
      { pointer: '/default_policy', code: 'invalid_action', message: 'Must be allow or deny.' },
      { pointer: '/source_groups/0/mode', code: 'mode_required', message: 'Every group has a mode.' },
    ];
    const body = { type: 'urn:weir:error:invalid_policy', error: 'The policy is not valid.', problems };
    const { url } = await serverThatAnswers({ status: 400, body });
    const text = [
      'default_policy: dney',
      'source_groups:',
      '  - id: lan',
      '    sources: { ips: [10.0.0.7] }',
      '    rules:',
      '      - { id: a, action: allow, match: {} }',
      '      - id: b',
      '        match:',
      '          dst_prots: [80]',
    ];
    const file = fileWith(text.join('\n'));
    const { code, out, err } = await run(['policy', 'apply', '-f', file, '--server', url], TOKEN);
    expect({ code, out, err: err.split('\n').slice(0, 4) }).toEqual({
      code: 1,
      out: '',
      err: [
        `weir: ${file} was refused: 3 problems`,
        `${file}:9:11: There is no such field. (/source_groups/0/rules/1/match/dst_prots)`,
        `${file}:1:17: Must be allow or deny. (/default_policy)`,
        `${file}:3:5: Every group has a mode. (/source_groups/0/mode)`,
      ],
    });
  });

  it('waits until the node is ready, and says what is not where it never is', async () => {
    const check = {
      name: 'policy_ready',
      ok: false,
      state: 'activating',
      detail: '',
      since: '2026-01-31T12:00:00.000Z',
    };
    const [unready, ready] = [
      { status: 503, body: { ready: false, checks: [check] } },
      ok({ ready: true, checks: [{ ...check, ok: true }] }),
    ];
    const answer = ok({ ...written, warnings: [] }, headers);
    const words = ['policy', 'apply', '-f', fileWith(envelope), '--wait'];
    const becomes = await serverThatAnswers(answer, unready, unready, ready);
    const { code, out } = await run([...words, '--server', becomes.url], TOKEN);
    expect([code, out.split('\n').at(-2), becomes.asked.length]).toEqual([0, 'the node is ready', 4]);
    const never = await serverThatAnswers(answer, unready);
    expect(await run([...words, '--timeout', '1ms', '--server', never.url], TOKEN)).toMatchObject({
      code: 1,
      err: 'weir: the policy was written, but the node is not ready: policy_ready activating\n',
    });
  });

  it.each([
    ['a: [', /^weir: .* is neither YAML nor JSON: /, 1],
    ['', /^weir: .* is empty\n/, 1],
    ['- a', /a policy is a map/, 1],
    [{ mode: 'enforce', policy: {} }, /^weir: the envelope in .* has no name\n {2}→ give --name/, 2],
  ])('says what is wrong with %j before anything is sent', async (content, sentence, code) => {
    const { url, asked } = await serverThatAnswers(ok({}));
    const told = await run(['policy', 'apply', '-f', fileWith(content), '--server', url], TOKEN);
    expect([told.code, told.out, asked]).toEqual([code, '', []]);
    expect(told.err).toMatch(sentence);
  });
});

describe('weir policy delete', () => {
  it('deletes what it read, and says what decides now', async () => {
    const { url, asked } = await serverThatAnswers(ok({ ...record, policy: config }), { status: 204, body: undefined });
    expect(await run(['policy', 'delete', '--name', 'office', '--server', url], TOKEN)).toEqual({
      code: 0,
      out: 'office deleted\nnone is active now: policy.fallback decides\n',
      err: '',
    });
    expect(asked.map(({ method, path, ifMatch }) => [method, path, ifMatch])).toEqual([
      ['GET', '/api/v1/policies/by-name/office', undefined],
      ['DELETE', '/api/v1/policies/p-1', '"p-1.3"'],
    ]);
  });

  it('wants to be told which', async () => {
    const { url, asked } = await serverThatAnswers(ok({}));
    expect((await run(['policy', 'delete', '--server', url], TOKEN)).code).toBe(2);
    expect(asked).toEqual([]);
  });
});

describe('weir policy diff', () => {
  const stored = ok({ ...record, policy: config });
  const list = ok({ items: [record] });

  it('ends with 0 where the file says the same in another form', async () => {
    const { url } = await serverThatAnswers(list, stored);
    const same = { default_policy: 'DENY', source_groups: [{ mode: 'enforce', ...group, rules: [] }] };
    const file = fileWith(same);
    expect(await run(['policy', 'diff', '-f', file, '--server', url], TOKEN)).toEqual({
      code: 0,
      out: `${file} says what office says\n`,
      err: '',
    });
  });

  it('ends with 3 and a line for each change', async () => {
    const { url } = await serverThatAnswers(list, stored);
    const changed = {
      ...config,
      source_groups: [
        { ...group, sources: { ips: ['10.0.0.8'] } },
        { ...group, id: 'guests' },
      ],
    };
    const words = ['policy', 'diff', '-f', fileWith({ ...envelope, mode: 'audit', policy: changed }), '--server', url];
    expect(await run(words, TOKEN)).toEqual({
      code: 3,
      out: `mode: enforce → audit
~ group lan
    mode: enforce → audit
    sources.ips: -10.0.0.7 +10.0.0.8
+ group guests
`,
      err: '',
    });
    const again = await serverThatAnswers(list, stored);
    const { code, out } = await run([...words.slice(0, -1), again.url, '--output', 'json'], TOKEN);
    expect([code, JSON.parse(out)]).toEqual([
      3,
      {
        compared_with: 'office',
        same: false,
        fields: [{ field: 'mode', from: 'enforce', to: 'audit' }],
        groups: [
          {
            id: 'lan',
            change: 'changed',
            moved: null,
            fields: [
              { field: 'mode', from: 'enforce', to: 'audit' },
              { field: 'sources.ips', from: ['10.0.0.7'], to: ['10.0.0.8'] },
            ],
            rules: [],
          },
          { id: 'guests', change: 'added', moved: null, fields: [], rules: [] },
        ],
      },
    ]);
  });

  it('compares with nothing while no policy is active', async () => {
    const { url } = await serverThatAnswers(ok({ items: [] }));
    const { code, out } = await run(['policy', 'diff', '-f', fileWith(config), '--server', url], TOKEN);
    expect([code, out]).toEqual([3, 'default_policy: (none) → deny\n+ group lan\n']);
  });
});

describe('weir policy explain', () => {
  const explained = {
    decision: 'deny',
    effective_action: 'allow',
    mode: 'audit',
    source_group: 'lan',
    rule: 'web',
    reason: 'The rule matches.',
    walk: [
      { source_group: 'guests', rule: null, matched: false, why: 'the source is not in the group' },
      { source_group: 'lan', rule: 'web', matched: true, why: 'everything matches' },
    ],
    walk_omitted: 4,
    unknown: [],
  };

  it('prints the walk, and that an audited deny passes', async () => {
    const { url, asked } = await serverThatAnswers(ok(explained));
    const flags = ['--src', '10.0.0.7', '--dst', '192.0.2.1', '--dst-port', '443', '--hostname', 'a.test'];
    expect(await run(['policy', 'explain', ...flags, '--server', url], TOKEN)).toEqual({
      code: 0,
      out: `deny by group lan, rule web, and passes: the mode is audit
The rule matches.

   GROUP     RULE  WHY
○  guests    -     the source is not in the group
   … 4 more
●  lan       web   everything matches
`,
      err: '',
    });
    expect(asked.map(({ path, body }) => [path, JSON.parse(body)])).toEqual([
      [
        '/api/v1/policy/explain',
        { src: '10.0.0.7', dst: '192.0.2.1', proto: 'tcp', dst_port: 443, hostname: 'a.test' },
      ],
    ]);
  });

  it('asks about a TLS connection and its request, and says what was not given', async () => {
    const { url, asked } = await serverThatAnswers(ok({ ...explained, unknown: ['tls.server_cn', 'http.headers'] }));
    const words = [
      'policy',
      'explain',
      '--server',
      url,
      '--src',
      '10.0.0.7',
      '--dst',
      '192.0.2.1',
      '--dst-port',
      '443',
    ];
    const said = ['--sni', 'a.test', '--method', 'POST', '--path', '/a?b=c&b=d', '--header', 'Host: a.test'];
    const { out } = await run([...words, ...said, '--header', 'X-A: 1:2'], TOKEN);
    expect(out).toContain('not given, and would matter: tls.server_cn, http.headers\n');
    expect(JSON.parse(asked[0]?.body ?? '')).toEqual({
      ...{ src: '10.0.0.7', dst: '192.0.2.1', proto: 'tcp', dst_port: 443, sni: 'a.test' },
      http: { method: 'POST', host: 'a.test', path: '/a', query: { b: ['c', 'd'] }, headers: { 'x-a': ['1:2'] } },
    });
    expect((await run([...words, '--header', 'no colon'], TOKEN)).code).toBe(2);
  });

  it('asks about lookups, ICMP, and by a file', async () => {
    const { url, asked } = await serverThatAnswers(ok(explained));
    const words = ['policy', 'explain', '--server', url, '--src', '10.0.0.7', '--output', 'json'];
    expect(JSON.parse((await run([...words, '--query', 'a.test'], TOKEN)).out)).toEqual(explained);
    await run([...words, '--dst', '192.0.2.1', '--proto', '1', '--icmp-type', '8', '-f', fileWith(envelope)], TOKEN);
    expect(asked.map(({ body }) => JSON.parse(body))).toEqual([
      { src: '10.0.0.7', query: 'a.test' },
      {
        src: '10.0.0.7',
        dst: '192.0.2.1',
        proto: 1,
        icmp_type: 8,
        policy: { default_policy: 'deny', source_groups: [{ mode: 'enforce', ...group }] },
      },
    ]);
  });

  it.each([
    [[]],
    [['--dst', '192.0.2.1']],
    [['--query', 'a.test', '--dst-port', '53']],
    [['--dst', '192.0.2.1', '--dst-port', '65536']],
  ])('%j is no question', async (flags) => {
    const { url, asked } = await serverThatAnswers(ok(explained));
    const { code } = await run(['policy', 'explain', '--src', '10.0.0.7', ...flags, '--server', url], TOKEN);
    expect([code, asked]).toEqual([2, []]);
  });
});
