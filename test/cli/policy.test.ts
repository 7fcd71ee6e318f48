import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { readPolicyText } from '#config/policy/policy-text.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { clockAt, ok, RECORD, run, serverThatAnswers, TOKEN } from './cli-run.js';

const spare = { ...RECORD, id: 'p-2', name: null, form: 'singleton', mode: 'audit', active: false };
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
  it('`weir policy list` prints a table of all policies that marks the active policy', async () => {
    clockAt('2026-02-05T20:00:00Z');
    const { url } = await serverThatAnswers(ok({ items: [RECORD, spare] }));
    expect(await run(['policy', 'list', '--server', url], TOKEN)).toEqual({
      code: 0,
      out: `NAME    MODE     ACTIVE  REVISION  FORM       UPDATED  BY     ID
office  enforce  active  3         envelope   4 d ago  alice  p-1
-       audit    -       3         singleton  4 d ago  alice  p-2
`,
      err: '',
    });
    const coloured = await run(['policy', 'list', '--server', url], TOKEN, { colours: true });
    expect(coloured.out).toContain('enforce  \u001b[32mactive\u001b[39m  3 ');
  });
});

describe('weir policy get', () => {
  it('`weir policy get` prints a document that `weir policy apply` accepts, with the ETag in a comment', async () => {
    const { url, asked } = await serverThatAnswers(ok({ items: [spare, RECORD] }), ok({ ...RECORD, policy: config }));
    const { code, out, err } = await run(['policy', 'get', '--server', url], TOKEN);
    expect({ code, err, document: parse(out) }).toEqual({ code: 0, err: '', document: envelope });
    expect(out.split('\n').slice(0, 2)).toEqual([
      '# office: revision 3, active, written 2026-02-01T08:30:00.000Z by alice',
      '# ETag: "p-1.3"',
    ]);
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/policies', '/api/v1/policies/p-1']);
  });

  it('`weir policy get` with --name or --id prints the singleton form (without name and mode) if the policy was written in this form', async () => {
    const { url, asked } = await serverThatAnswers(ok({ ...spare, active: true, policy: config }));
    const words = ['policy', 'get', '--server', url, '--output', 'json'];
    expect(JSON.parse((await run([...words, '--name', 'a/b'], TOKEN)).out)).toEqual(config);
    expect(JSON.parse((await run([...words, '--id', 'p-2'], TOKEN)).out)).toEqual(config);
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/policies/by-name/a%2Fb', '/api/v1/policies/p-2']);
    expect((await run([...words, '--id', 'p-2', '--name', 'x'], TOKEN)).code).toBe(2);
  });

  it('`weir policy get` prints a document that `weir policy apply` writes back to the same policy, even if that policy has no name', async () => {
    const unnamed = { ...RECORD, name: null };
    const { url, asked } = await serverThatAnswers(
      ok({ ...unnamed, policy: config }),
      ok({ items: [unnamed] }),
      ok({ ...unnamed, warnings: [], proof, policy: config }, { etag: '"p-1.4"', 'weir-generation': '8' }),
    );
    const { out } = await run(['policy', 'get', '--id', 'p-1', '--server', url], TOKEN);
    const { code, err } = await run(['policy', 'apply', '-f', '-', '--server', url], TOKEN, { input: out });
    expect([code, err]).toEqual([0, '']);
    const { method, path, body } = asked[2] ?? {};
    expect([method, path, JSON.parse(body ?? '')]).toEqual([
      'PUT',
      '/api/v1/policies/p-1',
      { mode: 'enforce', policy: config },
    ]);
  });

  it.each([
    ['by its name', { name: 'old' }, ['--name', 'old'], '/api/v1/policies/by-name/old?form=singleton'],
    ['by its id, if it has no name', { name: null }, ['--id', 'p-2'], '/api/v1/policies/p-2?form=singleton'],
  ])(
    '`weir policy get` prints a document that `weir policy apply` writes back to an inactive policy in singleton form (found %s)',
    async (_, named, words, path) => {
      const inactive = { ...spare, ...named };
      const { url, asked } = await serverThatAnswers(
        ok({ ...inactive, policy: config }),
        ok({ ...inactive, warnings: [], proof, policy: config }, { etag: '"p-2.4"', 'weir-generation': '8' }),
      );
      const { out, err: said } = await run(['policy', 'get', ...words, '--server', url], TOKEN);
      const apply = ['policy', 'apply', '--replace', '-f', '-', '--server', url];
      const { code, err } = await run(apply, TOKEN, { input: out });
      expect([said, code, err]).toEqual(['', 0, '']);
      const put = asked.find(({ method }) => method === 'PUT');
      expect([put?.path, JSON.parse(put?.body ?? '')]).toEqual([path, config]);
    },
  );

  it('`weir policy diff` accepts a document with the members `form`, `name` and `policy`, an output form of `weir policy get`', async () => {
    const policy = { ...config, source_groups: [{ ...group, mode: 'audit' }] };
    const { url } = await serverThatAnswers(ok({ ...spare, name: 'old', policy }));
    const file = fileWith({ form: 'singleton', name: 'old', policy });
    expect((await run(['policy', 'diff', '--text', '-f', file, '--name', 'old', '--server', url], TOKEN)).code).toBe(0);
  });

  const TEXTS = [
    '',
    'yes',
    'no',
    'null',
    '~',
    'true',
    '0x10',
    '010',
    '1e3',
    '443',
    '-',
    '- a',
    '? a',
    '<<',
    '*a',
    '&a',
    '!!str',
    '%x',
    '@',
    '`',
    '#c',
    'a #b',
    'a: b',
    '{a}',
    '[a]',
    ' lead',
    'trail ',
    'a\nb',
    'a\n',
    '\n',
    '\ttab',
    'a\r\nb',
    '"q"',
    "'q'",
    'é\u2028\u{1f600}',
    '\u0000\u001b',
    '\ud800',
    '2001-01-01',
    '12:30:45',
    '...',
    '---',
    '\\d+\\.$',
    'x'.repeat(2_000),
  ];
  const NUMBERS = [0, 443, 4294967295, 1.5, -1, 1e21];
  it.each(['yaml', 'json'])(
    '`weir policy get` prints any stored text or number so that a parser of the output format %s reads the stored value',
    async (form) => {
      const keys = Object.fromEntries(TEXTS.map((text, index) => [text, TEXTS.at(-1 - index)]));
      const odd = { texts: TEXTS, numbers: NUMBERS, keys, nested: [[[]], {}, { a: [{}] }], truth: [true, false] };
      for (const [stored, written] of [
        [{ ...spare, active: true, policy: odd }, odd],
        [
          { ...RECORD, name: '#: x', policy: odd },
          { mode: 'enforce', name: '#: x', policy: odd },
        ],
      ]) {
        const { url } = await serverThatAnswers(ok(stored));
        const { out } = await run(['policy', 'get', '--id', 'x', '--output', form, '--server', url], TOKEN);
        expect(readPolicyText(out).value).toEqual(written);
        expect(JSON.parse(readPolicyText(out).json)).toEqual(written);
      }
    },
  );

  it('`weir policy get` prints an empty policy while no policy is active', async () => {
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
  const written = { ...RECORD, warnings: [warning], proof, policy: config };
  const headers = { etag: '"p-1.3"', 'weir-generation': '8' };

  it('`weir policy apply` writes an envelope (policy with name and mode) to the stored policy of that name, and prints the line of each warning', async () => {
    const { url, asked } = await serverThatAnswers(ok(written, headers));
    const file = fileWith('mode: enforce\nname: office\npolicy:\n  source_groups:\n    - id: lan\n');
    expect(await run(['policy', 'apply', '--replace', '-f', file, '--server', url], TOKEN)).toEqual({
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

  it('`weir policy apply` sends JSON from standard input unchanged, except for the name and mode that --name and --mode give', async () => {
    const { url, asked } = await serverThatAnswers(ok({ ...written, warnings: [] }, headers));
    const input = JSON.stringify(envelope, null, 1);
    const words = ['policy', 'apply', '--replace', '-f', '-', '--server', url, '--output', 'json'];
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

  it('`weir policy apply` writes a file in singleton form (without name and mode) to the active policy, and reads the warnings with a dry run', async () => {
    const active = { ...RECORD, form: 'singleton' };
    const warned = { ...warning, pointer: '/source_groups/0' };
    const { url, asked } = await serverThatAnswers(
      ok(config, { ...headers, 'weir-warnings': 'shadowed, activity_taken' }),
      ok({ items: [spare, active] }),
      ok({ ...active, dry_run: true, warnings: [warned], program_lines: 9, proof, policy: config }),
    );
    const file = fileWith(config);
    expect(await run(['policy', 'apply', '--replace', '-f', file, '--server', url], TOKEN)).toEqual({
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

  it('`weir policy apply` wraps a policy without group modes in an envelope if the flags --name and --mode are given', async () => {
    const { url, asked } = await serverThatAnswers(ok({ ...written, warnings: [] }, headers));
    const words = ['policy', 'apply', '--replace', '-f', fileWith(config), '--server', url];
    expect((await run([...words, '--name', 'home', '--mode', 'audit'], TOKEN)).code).toBe(0);
    expect(asked.map(({ path, body }) => [path, JSON.parse(body)])).toEqual([
      ['/api/v1/policies/by-name/home', { mode: 'audit', name: 'home', policy: config }],
    ]);
    expect((await run([...words, '--mode', 'audit'], TOKEN)).err).toContain('→ give --name too, or omit --mode');
    expect((await run([...words, '--name', 'home'], TOKEN)).code).toBe(0);
    expect(asked[1]).toMatchObject({
      path: '/api/v1/policies/by-name/home?form=singleton',
      body: JSON.stringify(config),
    });
  });

  it('`weir policy apply` with --dry-run requests a dry run, and prints that nothing was changed', async () => {
    const answer = { ...written, warnings: [], dry_run: true, program_lines: 9 };
    const { url, asked } = await serverThatAnswers(ok(answer));
    const { code, out } = await run(
      ['policy', 'apply', '--replace', '-f', fileWith(envelope), '--dry-run', '--server', url],
      TOKEN,
    );
    expect([code, out]).toEqual([
      0,
      'office (enforce), revision 3: valid; nothing was changed\nproved by 24 packets of 6 classes\n',
    ]);
    expect(asked.map(({ path }) => path)).toEqual(['/api/v1/policies/by-name/office?dry_run=true']);
  });

  it('`weir policy apply` prints each problem of the policy with line number and JSON pointer', async () => {
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
    const { code, out, err } = await run(['policy', 'apply', '--replace', '-f', file, '--server', url], TOKEN);
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

  it('`weir policy apply` with --wait waits until the node is ready, or prints the failing readiness checks after the timeout', async () => {
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
    const words = ['policy', 'apply', '--replace', '-f', fileWith(envelope), '--wait'];
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
    [['--no-rehearse'], '?rehearse=false'],
    [['--wait', 'quorum'], '?wait=quorum'],
    [['--no-rehearse', '--wait', 'all', '--no-activate'], '?activate=false&rehearse=false&wait=all'],
  ])(
    '`weir policy apply` with the flags %j sends the query %s, and does not wait until the node is ready',
    async (flags, query) => {
      const { url, asked } = await serverThatAnswers(ok({ ...written, warnings: [] }, headers));
      const words = ['policy', 'apply', '--replace', '-f', fileWith(envelope), ...flags, '--server', url];
      expect((await run(words, TOKEN)).code).toBe(0);
      expect(asked.map(({ path }) => path)).toEqual([`/api/v1/policies/by-name/office${query}`]);
    },
  );

  it('`weir policy apply` exits with 2 if --wait has another value', async () => {
    const { url, asked } = await serverThatAnswers(ok({}));
    const words = ['policy', 'apply', '-f', fileWith(envelope), '--wait', 'some', '--server', url];
    const { code, err } = await run(words, TOKEN);
    expect([code, asked]).toEqual([2, []]);
    expect(err).toContain('Allowed choices are ready, quorum, all');
  });

  it.each([
    ['a: [', /^weir: \S+:1:5: the text is neither YAML nor JSON: [^\n]+\n$/, 1],
    ['', /^weir: .* is empty\n/, 1],
    ['- a', /a policy is a map/, 1],
    [{ mode: 'enforce', policy: {} }, /^weir: the envelope in .* has no name\n {2}→ give --name/, 2],
  ])(
    '`weir policy apply` exits with an error text about the file content %j, and sends no request',
    async (content, sentence, code) => {
      const { url, asked } = await serverThatAnswers(ok({}));
      const told = await run(['policy', 'apply', '--replace', '-f', fileWith(content), '--server', url], TOKEN);
      expect([told.code, told.out, asked]).toEqual([code, '', []]);
      expect(told.err).toMatch(sentence);
    },
  );
});

describe('weir policy apply while another policy is active', () => {
  const office = RECORD;
  const home = { ...RECORD, id: 'p-3', name: 'home', active: false };
  const plain = { ...RECORD, id: 'p-4', name: 'default', form: 'singleton' };
  const renamed = { ...plain, name: 'office' };
  const written = { ...home, active: true, warnings: [], proof, policy: config };
  const headers = { etag: '"p-3.3"', 'weir-generation': '8' };
  const singletonFile = config;
  const homeFile = { ...envelope, name: 'home' };
  const words = (file: unknown, ...more: string[]) => ['policy', 'apply', '-f', fileWith(file), ...more];

  it.each([
    ['the singleton form over an active envelope', singletonFile, [office, home], 'office'],
    ['the singleton form over an envelope in audit mode', singletonFile, [{ ...office, mode: 'audit' }], 'office'],
    ['the singleton form over an active envelope without a name', singletonFile, [{ ...office, name: null }], 'p-1'],
    ['an envelope with another name than the active policy', homeFile, [office, home], 'office'],
    ['an envelope with a name that is not stored yet', homeFile, [office], 'office'],
    ['an envelope in audit mode with another name', { ...homeFile, mode: 'audit' }, [office, home], 'office'],
    ['an envelope over an active singleton policy', homeFile, [plain], 'default'],
  ])(
    '`weir policy apply` without --replace does not write a policy that would replace another active policy: %s',
    async (_, file, items, active) => {
      const { url, asked } = await serverThatAnswers(ok({ items }));
      const { code, out, err } = await run([...words(file), '--server', url], TOKEN);
      expect([code, out]).toEqual([1, '']);
      expect(err).toMatch(
        new RegExp(`^weir: the policy ${active} is active, and .* would (replace it|take its place)\\n`),
      );
      expect(err).toContain('--replace');
      expect(asked.map(({ method }) => method)).toEqual(['GET']);
    },
  );

  it.each([
    ['--replace', homeFile, ['--replace']],
    ['--name', homeFile, ['--name', 'home']],
    ['--no-activate', homeFile, ['--no-activate']],
    ['the mode disabled', { ...homeFile, mode: 'disabled' }, []],
    ['--mode disabled', homeFile, ['--mode', 'disabled']],
  ])(
    '`weir policy apply` does not ask before a write with %s, although another policy is active',
    async (_, file, flags) => {
      const { url, asked } = await serverThatAnswers(ok(written, headers));
      expect((await run([...words(file, ...flags), '--server', url], TOKEN)).code).toBe(0);
      expect(asked.map(({ method, ifMatch }) => [method, ifMatch])).toEqual([['PUT', undefined]]);
    },
  );

  it.each([
    ['the file names the active policy', { ...envelope, name: ' OFFICE ' }, [office], undefined],
    ['no policy is active', homeFile, [{ ...office, active: false }], undefined],
    ['no policy is active, and the file has the singleton form', singletonFile, [home], '"none"'],
    ['the active policy was written in singleton form', singletonFile, [renamed], '"p-4.3"'],
    [
      'the active policy has the name of the singleton policy',
      singletonFile,
      [{ ...plain, form: 'envelope' }],
      '"p-4.3"',
    ],
  ])(
    '`weir policy apply` does not ask before a write that replaces no other active policy: %s',
    async (_, file, items, ifMatch) => {
      const answer = { ...written, ...plain, warnings: [] };
      const after = { ...plain, id: 'p-3' };
      const { url, asked } = await serverThatAnswers(ok({ items }), ok(answer, headers), ok({ items: [after] }));
      expect((await run([...words(file), '--server', url], TOKEN)).err).toBe('');
      expect(asked[1]).toMatchObject({ method: 'PUT', ifMatch });
    },
  );

  it.each([
    ['y', 0, ['GET', 'PUT']],
    ['YES', 0, ['GET', 'PUT']],
    ['n', 1, ['GET']],
    ['', 1, ['GET']],
    ['yellow', 1, ['GET']],
  ])(
    '`weir policy apply` asks before it replaces another active policy, and the answer %j leads to exit code %i',
    async (typed, code, methods) => {
      const { url, asked } = await serverThatAnswers(ok({ items: [office] }), ok(written, headers));
      const told = await run([...words(homeFile), '--server', url], TOKEN, { typed });
      expect([told.code, asked.map(({ method }) => method)]).toEqual([code, methods]);
      expect(told.err).toMatch(/^the policy office is active, and .* would take its place\. Go on\? \[y\/N\] /);
      if (code === 1) expect(told.err).toContain('nothing was changed');
    },
  );

  it('`weir policy apply` refuses to replace another active policy by a policy from standard input, and does not ask the user', async () => {
    const { url, asked } = await serverThatAnswers(ok({ items: [office] }), ok(written, headers));
    const input = JSON.stringify(homeFile);
    const told = await run(['policy', 'apply', '-f', '-', '--server', url], TOKEN, { input, typed: 'y' });
    expect([told.code, asked.length]).toEqual([1, 1]);
  });

  it('`weir policy apply` with --dry-run prints a warning that names the policy that would be replaced, and continues', async () => {
    const dry = { ...written, dry_run: true, program_lines: 9 };
    const { url } = await serverThatAnswers(ok({ items: [office] }), ok(dry));
    const { code, err } = await run([...words(singletonFile, '--dry-run'), '--server', url], TOKEN);
    expect([code, err]).toEqual([
      0,
      expect.stringMatching(/^warning: the policy office is active, and .* would replace it; .* --replace\n$/),
    ]);
  });

  it('`weir policy apply` exits with 1 if another write has changed the active policy since `apply` read that policy', async () => {
    const refused = { type: 'urn:weir:error:precondition_failed', error: 'The stored ETag is another.' };
    const { url } = await serverThatAnswers(ok({ items: [plain] }), { status: 412, body: refused });
    const { code, err } = await run([...words(singletonFile), '--server', url], TOKEN);
    expect([code, err]).toEqual([1, expect.stringContaining('→ read the policy again')]);
  });
});

describe('weir policy activate', () => {
  const home = { ...RECORD, id: 'p-3', name: 'home', active: false };
  const list = ok({ items: [RECORD, home] });
  const activated = { ...home, active: true, warnings: [], proof, policy: config };
  const headers = { etag: '"p-3.3"', 'weir-generation': '8' };
  const warning = { pointer: '', code: 'activity_taken', message: 'The policy office was active.' };

  it.each([[['home']], [[' HOME ']], [['--id', 'p-3']]])(
    '`weir policy activate` with the arguments %j activates the stored policy without changing its content',
    async (which) => {
      const { url, asked } = await serverThatAnswers(list, ok({ ...activated, warnings: [warning] }, headers));
      expect(await run(['policy', 'activate', ...which, '--server', url], TOKEN)).toEqual({
        code: 0,
        out: 'home (enforce), revision 3: in force, generation 8\nETag "p-3.3"\nproved by 24 packets of 6 classes\n',
        err: 'warning: The policy office was active. [activity_taken]\n',
      });
      expect(asked.map(({ method, path, body, ifMatch }) => [method, path, body, ifMatch])).toEqual([
        ['GET', '/api/v1/policies', '', undefined],
        ['POST', '/api/v1/policies/p-3/activate', '', '"p-3.3"'],
      ]);
    },
  );

  it('`weir policy activate` with --no-rehearse and --wait all sends both flags in the query', async () => {
    const { url, asked } = await serverThatAnswers(list, ok({ ...activated, warnings: [] }, headers));
    const words = ['policy', 'activate', 'home', '--no-rehearse', '--wait', 'all', '--server', url];
    expect((await run(words, TOKEN)).code).toBe(0);
    expect(asked.at(-1)?.path).toBe('/api/v1/policies/p-3/activate?rehearse=false&wait=all');
  });

  it('`weir policy activate` prints "1 class" instead of "1 classes" if the proof of the policy has one equivalence class of packets', async () => {
    const one = { ...activated, proof: { ...proof, classes: 1 } };
    const { url } = await serverThatAnswers(list, ok(one, headers));
    expect((await run(['policy', 'activate', 'home', '--server', url], TOKEN)).out).toContain(
      '24 packets of 1 class\n',
    );
  });

  it('`weir policy activate` with --dry-run changes nothing, and with --if-match sends the given ETag in the If-Match header', async () => {
    const { url, asked } = await serverThatAnswers(list, ok({ ...activated, dry_run: true, program_lines: 9 }));
    const words = ['policy', 'activate', 'home', '--dry-run', '--if-match', 'p-3.2', '--server', url];
    expect((await run(words, TOKEN)).out).toBe(
      'home (enforce), revision 3: valid; nothing was changed\nproved by 24 packets of 6 classes\n',
    );
    expect(asked[1]).toMatchObject({ path: '/api/v1/policies/p-3/activate?dry_run=true', ifMatch: '"p-3.2"' });
  });

  it.each([
    [['nowhere'], 1, /^weir: there is no policy named nowhere\n {2}→ stored policies: office, home\n$/],
    [['--id', 'p-9'], 1, /^weir: there is no policy with the id p-9\n/],
    [[], 2, /^weir: which policy\?/],
    [['home', '--id', 'p-3'], 2, /give either a name or --id, not both/],
  ])(
    '`weir policy activate` with the incomplete or wrong arguments %j exits with an error text of one sentence',
    async (which, code, sentence) => {
      const { url, asked } = await serverThatAnswers(list);
      const told = await run(['policy', 'activate', ...which, '--server', url], TOKEN);
      expect([told.code, told.err]).toEqual([code, expect.stringMatching(sentence)]);
      expect(asked.every(({ method }) => method === 'GET')).toBe(true);
    },
  );
});

describe('weir policy delete', () => {
  it('`weir policy delete` deletes only the policy revision that it has read, and prints that policy.fallback decides now', async () => {
    const { url, asked } = await serverThatAnswers(ok({ ...RECORD, policy: config }), { status: 204, body: undefined });
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

  it('`weir policy delete` with --no-rehearse and --wait sends both flags in the query, and prints a warning that names the late nodes', async () => {
    const late = { status: 204, body: undefined, headers: { 'weir-warnings': 'none_active, nodes_behind' } };
    const { url, asked } = await serverThatAnswers(ok({ ...RECORD, policy: config }), late);
    const words = ['policy', 'delete', '--name', 'office', '--no-rehearse', '--wait', 'quorum', '--server', url];
    const { code, err } = await run(words, TOKEN);
    expect([code, err]).toEqual([0, 'warning: See docs/errors.md. [nodes_behind]\n']);
    expect(asked.at(-1)?.path).toBe('/api/v1/policies/p-1?rehearse=false&wait=quorum');
  });

  it('`weir policy delete` exits with 2 if neither a name nor an id is given', async () => {
    const { url, asked } = await serverThatAnswers(ok({}));
    expect((await run(['policy', 'delete', '--server', url], TOKEN)).code).toBe(2);
    expect(asked).toEqual([]);
  });
});

describe('weir policy diff', () => {
  const stored = ok({ ...RECORD, policy: config });
  const list = ok({ items: [RECORD] });

  it('`weir policy diff` exits with 0 if the file contains the active policy in another form', async () => {
    const { url } = await serverThatAnswers(list, stored);
    const same = { default_policy: 'DENY', source_groups: [{ mode: 'enforce', ...group, rules: [] }] };
    const file = fileWith(same);
    expect(await run(['policy', 'diff', '--text', '-f', file, '--server', url], TOKEN)).toEqual({
      code: 0,
      out: `${file} has the same content as office\n`,
      err: '',
    });
  });

  it('`weir policy diff` exits with 3 and prints one line per change if the file differs from the active policy', async () => {
    const { url } = await serverThatAnswers(list, stored);
    const changed = {
      ...config,
      source_groups: [
        { ...group, sources: { ips: ['10.0.0.8'] } },
        { ...group, id: 'guests' },
      ],
    };
    const words = [
      'policy',
      'diff',
      '--text',
      '-f',
      fileWith({ ...envelope, mode: 'audit', policy: changed }),
      '--server',
      url,
    ];
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

  it('`weir policy diff` compares the file with an empty policy while no policy is active', async () => {
    const { url } = await serverThatAnswers(ok({ items: [] }));
    const { code, out } = await run(['policy', 'diff', '--text', '-f', fileWith(envelope), '--server', url], TOKEN);
    expect([code, out]).toEqual([3, 'default_policy: (none) → deny\n+ group lan\n']);
  });
});

describe('weir policy diff and explain of an invalid file', () => {
  const groups = [7, { ...group, mode: 'audit' }];
  it.each<[string, unknown, string[]]>([
    ['a value that is not valid', 'default_policy: dney\n', ['1:17: /default_policy']],
    [
      'an unknown key and a group without mode in singleton form',
      'source_groups:\n  - id: lan\n    sources: { ips: [10.0.0.7] }\n    rulez: []\n',
      ['2:5: /source_groups/0/mode', '4:5: /source_groups/0/rulez'],
    ],
    [
      'a group that is no object and a group with a mode in an envelope',
      { mode: 'enforce', policy: { source_groups: groups } },
      ['1:46: /policy/source_groups/0', '1:98: /policy/source_groups/1/mode'],
    ],
    ['a key that JSON repeats', '{"default_policy":"deny","default_policy":"allow"}', ['1:19: /default_policy']],
    [
      'a policy in a wrapper of the singleton form',
      { form: 'singleton', name: 'old', policy: { default_policy: 7 } },
      ['1:61: /default_policy'],
    ],
  ])(
    '`weir policy diff` and `weir policy explain` list each problem of an invalid policy file (%s) with line and JSON pointer, and send no request',
    async (_, content, expected) => {
      const { url, asked } = await serverThatAnswers(ok({}));
      const file = fileWith(content);
      for (const words of [['diff'], ['explain', '--src', '10.0.0.7', '--query', 'a.test']]) {
        const { code, out, err } = await run(['policy', ...words, '-f', file, '--server', url], TOKEN);
        const lines = err.split('\n');
        const placed = lines.slice(1, -2).map((line) => line.replace(/^.*yaml:(\d+:\d+: ).*\((.*)\)$/, '$1$2'));
        expect({ code, out, placed, asked }).toEqual({ code: 1, out: '', placed: expected, asked: [] });
        const count = `${expected.length} problem${expected.length === 1 ? '' : 's'}`;
        expect([lines[0], lines.at(-2)]).toEqual([
          `weir: ${file} is not a valid policy: ${count}`,
          '  → correct everything that the message lists; the list is complete',
        ]);
      }
    },
  );

  it('`weir policy diff` accepts the id that `weir policy get` prints in an envelope without a name', async () => {
    const { url } = await serverThatAnswers(ok({ ...RECORD, name: null, policy: config }));
    const file = fileWith({ mode: 'enforce', id: 'p-1', policy: config });
    expect((await run(['policy', 'diff', '--text', '-f', file, '--id', 'p-1', '--server', url], TOKEN)).code).toBe(0);
  });
});

describe('weir policy diff and explain of an envelope without a mode', () => {
  const file = () => fileWith({ name: 'office', policy: config });

  it.each([
    ['an envelope', 'audit', { ...RECORD, mode: 'audit', policy: config }],
    [
      'singleton form',
      'enforce',
      { ...RECORD, form: 'singleton', policy: { ...config, source_groups: [{ mode: 'enforce', ...group }] } },
    ],
  ])(
    '`weir policy diff` compares an envelope (policy document with a name) without a mode with an active policy in the form of %s as if it had the mode %s',
    async (_, __, stored) => {
      const { url } = await serverThatAnswers(ok({ items: [stored] }), ok(stored));
      const { code, err } = await run(['policy', 'diff', '--text', '-f', file(), '--server', url], TOKEN);
      expect({ code, err }).toEqual({ code: 0, err: '' });
    },
  );

  it('`weir policy explain` sends the source groups of an envelope (policy document with a name) without a mode with the mode enforce', async () => {
    const { url, asked } = await serverThatAnswers({ status: 500, body: {} });
    await run(['policy', 'explain', '--src', '10.0.0.7', '--query', 'a.test', '-f', file(), '--server', url], TOKEN);
    expect(asked.map(({ body }) => (JSON.parse(body) as { readonly policy: unknown }).policy)).toEqual([
      { ...config, source_groups: [{ mode: 'enforce', ...group }] },
    ]);
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

  it('`weir policy explain` prints why each source group matches or does not match, and that an audited deny passes', async () => {
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

  it('`weir policy explain` names the policy generation that the kernel enforces if the active policy is not in force, and prints no table without steps', async () => {
    const { url } = await serverThatAnswers(ok({ ...explained, walk: [], walk_omitted: 0, enforced_instead: 17 }));
    const { out } = await run(['policy', 'explain', '--src', '10.0.0.7', '--query', 'a.test', '--server', url], TOKEN);
    expect(
      out,
    ).toBe(`the active policy is not in force: the kernel enforces generation 17, and the data folder is an older or another one; see \`weir status\`
deny by group lan, rule web, and passes: the mode is audit
The rule matches.
`);
  });

  it('`weir policy explain` prints the command that explains the flow to which a denied packet may be a reply', async () => {
    const opener = { src: '10.0.0.7', dst: '192.0.2.1', proto: 6, src_port: 40_000, dst_port: 443 };
    const { url } = await serverThatAnswers(ok({ ...explained, reply_to: opener }));
    const words = ['policy', 'explain', '--src', '192.0.2.1', '--src-port', '443', '--dst', '10.0.0.7'];
    const hint = async (...more: string[]) => {
      const { out } = await run([...words, '--dst-port', '40000', '--server', url, ...more], TOKEN);
      return out.split('\n')[2];
    };
    const expected =
      'if this packet is a reply, it passes, because replies of an allowed flow need no rule; explain the flow: weir policy explain --src 10.0.0.7 --dst 192.0.2.1 --proto tcp --src-port 40000 --dst-port 443';
    expect(await hint()).toBe(expected);
    const draft = fileWith(envelope);
    expect(await hint('-f', draft)).toBe(`${expected} --file ${draft}`);
  });

  it.each([
    [['icmp'], 8],
    [['1', '--icmp-type', '0'], 0],
  ])(
    '`weir policy explain` with the ICMP arguments --proto %s asks about an echo request unless they contain an ICMP type',
    async ([proto = '', ...more], type) => {
      const { url, asked } = await serverThatAnswers(ok(explained));
      const words = ['policy', 'explain', '--src', '10.0.0.7', '--dst', '192.0.2.1', '--proto', proto, ...more];
      expect((await run([...words, '--server', url], TOKEN)).code).toBe(0);
      expect(JSON.parse(asked[0]?.body ?? '')).toMatchObject({ icmp_type: type });
    },
  );

  it('`weir policy explain` names the objects that own the addresses, and the selector that selects the source', async () => {
    const owner = (kind: string, namespace: string | null, name: string) => ({
      integration: 'prod',
      kind,
      namespace,
      name,
    });
    const owners = { source: owner('pod', 'shop', 'web-5d4f'), destination: owner('node', null, 'worker-1') };
    const selector = { integration: 'prod', pod_selector: { match_labels: { app: 'web' } } };
    const { url } = await serverThatAnswers(ok({ ...explained, owners, selected_by: selector }));
    const { out } = await run(['policy', 'explain', '--src', '10.0.0.7', '--query', 'a.test', '--server', url], TOKEN);
    expect(out.split('\n').slice(1, 5)).toEqual([
      'The rule matches.',
      'source: pod shop/web-5d4f of prod, selected by {"pod_selector":{"match_labels":{"app":"web"}}}',
      'destination: node worker-1 of prod',
      '',
    ]);
  });

  it('`weir policy explain` explains an HTTP request in a TLS connection, and lists the missing inputs that could change the result', async () => {
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
    expect(out).toContain('not given, and can change the decision: tls.server_cn, http.headers\n');
    expect(JSON.parse(asked[0]?.body ?? '')).toEqual({
      ...{ src: '10.0.0.7', dst: '192.0.2.1', proto: 'tcp', dst_port: 443, sni: 'a.test' },
      http: { method: 'POST', host: 'a.test', path: '/a', query: { b: ['c', 'd'] }, headers: { 'x-a': ['1:2'] } },
    });
    expect((await run([...words, '--header', 'no colon'], TOKEN)).code).toBe(2);
  });

  it('`weir policy explain` explains DNS queries and ICMP packets, also for a draft policy in a file', async () => {
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
  ])('`weir policy explain` exits with 2 for the incomplete or contradictory flags %j', async (flags) => {
    const { url, asked } = await serverThatAnswers(ok(explained));
    const { code } = await run(['policy', 'explain', '--src', '10.0.0.7', ...flags, '--server', url], TOKEN);
    expect([code, asked]).toEqual([2, []]);
  });
});
