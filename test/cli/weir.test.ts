import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { parse } from 'yaml';
import { ERRORS } from '#api/errors/error-table.js';
import { EXIT_CODES } from '#cli/errors/exit-codes.js';
import { openStore } from '#store/store.js';
import { freePort } from '#test/sockets/free-port.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { type Answer, clockAt, run, serverThatAnswers } from './cli-run.js';

const record = {
  id: '0b0e',
  subject: 'ci',
  role: 'readonly',
  created_at: '2026-01-01T00:00:00.000Z',
  expires_at: '2026-01-02T00:00:00.000Z',
  revoked_at: null,
};
const admin = { ...record, id: 'admin-file-1', subject: 'admin', role: 'admin', expires_at: null, revoked_at: null };

/** Returns the URL of a local port on which no server listens. */
async function closedServer() {
  return { url: `http://127.0.0.1:${await freePort()}` };
}

describe('weir token', () => {
  it('`weir token create` prints only the token on standard output, so that a script can read the token', async () => {
    const { url, asked } = await serverThatAnswers({ status: 201, body: { ...record, token: 'a.b.c' } });
    const words = ['token', 'create', '--subject', 'ci', '--role', 'readonly', '--expires-in', '24h', '--server', url];
    expect(await run(words, { WEIR_TOKEN: 'secret' })).toEqual({
      code: 0,
      out: 'a.b.c\n',
      err: 'token 0b0e for ci (readonly), valid until 2026-01-02T00:00:00.000Z\n',
    });
    expect(asked).toEqual([
      {
        method: 'POST',
        path: '/api/v1/tokens',
        authorization: 'Bearer secret',
        body: '{"subject":"ci","role":"readonly","expires_in":86400}',
      },
    ]);
  });

  it('`weir token create` without --expires-in requests a token that does not expire, and prints JSON with --output json', async () => {
    const issued = { ...admin, token: 'a.b.c' };
    const { url, asked } = await serverThatAnswers({ status: 201, body: issued });
    const words = ['token', 'create', '--subject', 'admin', '--role', 'admin', '--output', 'json'];
    const { code, out, err } = await run(words, { WEIR_TOKEN: 'secret', WEIR_SERVER: url });
    expect({ code, out: JSON.parse(out), err }).toEqual({ code: 0, out: issued, err: '' });
    expect(asked.map(({ body }) => body)).toEqual(['{"subject":"admin","role":"admin","expires_in":null}']);
  });

  it('`weir token list` prints tokens as a table, JSON or YAML, and authenticates with the token from --token-file', async () => {
    clockAt('2026-01-01T00:00:30Z');
    const { url, asked } = await serverThatAnswers({ status: 200, body: { items: [admin, record] } });
    const file = join(temporaryFolder(), 'token');
    writeFileSync(file, 'from-file\n');
    const words = ['token', 'list', '--server', url, '--token-file', file];
    expect(await run(words, { WEIR_TOKEN: 'from-environment' })).toEqual({
      code: 0,
      out: `ID            SUBJECT  ROLE      CREATED   EXPIRES  REVOKED
admin-file-1  admin    admin     30 s ago  never    -
0b0e          ci       readonly  30 s ago  in 23 h  -
`,
      err: '',
    });
    expect(asked.map(({ authorization }) => authorization)).toEqual(['Bearer from-file']);
    expect(JSON.parse((await run([...words, '--output', 'json'])).out)).toEqual({ items: [admin, record] });
    expect(parse((await run([...words, '--output', 'yaml'])).out)).toEqual({ items: [admin, record] });
  });

  it('`weir token revoke` sends the given id, and prints that the token is revoked', async () => {
    const { url, asked } = await serverThatAnswers({ status: 204, body: undefined });
    expect(await run(['token', 'revoke', 'a/b', '--server', url], { WEIR_TOKEN: 't' })).toEqual({
      code: 0,
      out: 'revoked a/b\n',
      err: '',
    });
    expect(asked.map(({ method, path }) => `${method} ${path}`)).toEqual(['DELETE /api/v1/tokens/a%2Fb']);
  });

  it('`weir token revoke` exits with 1 and lists the ids and subjects of the tokens that are not revoked, if the given id is unknown', async () => {
    const unknown: Answer = {
      status: 404,
      body: { type: 'urn:weir:error:not_found', error: 'There is no such token.' },
    };
    const gone = { ...record, id: 'gone', revoked_at: record.created_at };
    const { url } = await serverThatAnswers(unknown, { status: 200, body: { items: [admin, record, gone] } });
    expect(await run(['token', 'revoke', 'ci', '--server', url], { WEIR_TOKEN: 't' })).toEqual({
      code: 1,
      out: '',
      err: 'weir: there is no token with the id ci\n  → valid tokens: admin-file-1 (admin), 0b0e (ci)\n',
    });
  });

  const failures: readonly (readonly [string, Answer, string])[] = [
    [
      'prints the error text of the server',
      { status: 404, body: { error: 'There is no such token.' } },
      'There is no such token.',
    ],
    [
      'prints the remedy for the error forbidden in terms of the command line',
      { status: 403, body: { type: 'urn:weir:error:forbidden', error: 'A readonly token may not write.' } },
      'A readonly token may not write.\n  → give the token of an admin with --token-file or WEIR_TOKEN',
    ],
    [
      'prints the remedy for the error draining from the error table',
      { status: 503, body: { type: 'urn:weir:error:draining', error: 'The node is shutting down.' } },
      `The node is shutting down.\n  → ${ERRORS.draining.remedy}`,
    ],
    [
      'prints the HTTP status if the response has no error text',
      { status: 502, body: '<html>' },
      'the server answered with 502',
    ],
    [
      'refuses a JSON response that is not a list of tokens',
      { status: 200, body: { hello: 1 } },
      'the server sent an unexpected response; is it a Weir node?',
    ],
  ];
  it.each(failures)(
    '`weir token list` explains each kind of failed response of the API: it %s',
    async (_, answer, sentence) => {
      const { url } = await serverThatAnswers(answer);
      expect(await run(['token', 'list', '--server', url], { WEIR_TOKEN: 't' })).toEqual({
        code: 1,
        out: '',
        err: `weir: ${sentence}\n`,
      });
    },
  );

  it('`weir token list` with --config uses the API address and the admin token from the configuration of a local node', async () => {
    const { url, asked } = await serverThatAnswers({ status: 200, body: { items: [] } });
    const folder = temporaryFolder();
    const file = join(folder, 'weir.yaml');
    writeFileSync(join(folder, 'admin.token'), 'of-the-node\n');
    writeFileSync(file, `version: 1\nnode: { data_dir: ${folder} }\napi: { listen: "${new URL(url).host}" }\n`);
    expect(
      (await run(['token', 'list', '--config', file], { WEIR_TOKEN: 'other', WEIR_SERVER: 'http://[::1]:1' })).code,
    ).toBe(0);
    expect(asked.map(({ authorization }) => authorization)).toEqual(['Bearer of-the-node']);
  });

  it('`weir token list` treats an empty environment variable as unset', async () => {
    const { err } = await run(['token', 'list'], { WEIR_TOKEN: '', WEIR_SERVER: '' });
    expect(err).not.toContain('is not the URL');
    const { url } = await serverThatAnswers({ status: 200, body: { items: [] } });
    expect((await run(['token', 'list', '--server', url], { WEIR_TOKEN: '', WEIR_SERVER: '' })).err).not.toContain(
      'WEIR_TOKEN contains no token',
    );
  });

  it('`weir token list` does not follow a redirect, because the target of the redirect would receive the token', async () => {
    const { url, asked } = await serverThatAnswers({ status: 302, body: undefined });
    const { code, err } = await run(['token', 'list', '--server', url], { WEIR_TOKEN: 't' });
    expect({ code, err }).toEqual({
      code: 1,
      err: `weir: ${url} cannot be reached: unexpected redirect\n  → check that the node runs at this address; --server, WEIR_SERVER or --config give another address\n`,
    });
    expect(asked.length).toBe(1);
  });

  it('`weir token list` does not send the token to another machine without TLS', async () => {
    expect(await run(['token', 'list', '--server', 'http://192.0.2.1:8080'], { WEIR_TOKEN: 't' })).toEqual({
      code: 2,
      out: '',
      err: 'weir: http://192.0.2.1:8080 would send the token without encryption: use https, or a server on this machine\n',
    });
  });

  it('`weir token list` reports an unreachable server, a missing token or an invalid URL in one sentence', async () => {
    const { url } = await serverThatAnswers({ status: 200, body: {} });
    const { url: unused } = await closedServer();
    const advice = 'check that the node runs at this address; --server, WEIR_SERVER or --config give another address';
    const told = [
      await run(['token', 'list', '--server', unused], { WEIR_TOKEN: 't' }),
      await run(['token', 'list', '--server', url.replace('http', 'https')], { WEIR_TOKEN: 't' }),
      await run(['token', 'list', '--server', url, '--token-file', '/no/such/file']),
      await run(['token', 'list', '--server', url, '--token-file', '/etc']),
      await run(['token', 'list', '--server', url], { WEIR_TOKEN: 'two words' }),
      await run(['token', 'list', '--server', 'example'], { WEIR_TOKEN: 't' }),
    ];
    expect(told.map(({ code, err }) => [code, err])).toEqual([
      [1, `weir: ${unused} cannot be reached: connection refused\n  → ${advice}\n`],
      [1, `weir: ${url.replace('http', 'https')} cannot be reached: TLS failed: wrong version number\n  → ${advice}\n`],
      [
        1,
        'weir: there is no token: /no/such/file does not exist\n  → give a token with --token-file or WEIR_TOKEN; the node writes its admin.token when it starts\n',
      ],
      [
        1,
        'weir: there is no token: /etc cannot be read: /etc is a directory, not a regular file\n  → give a token with --token-file or WEIR_TOKEN; the user of the node may read its admin.token\n',
      ],
      [1, 'weir: WEIR_TOKEN contains no token\n'],
      [2, 'weir: example is not the URL of a server, such as http://127.0.0.1:8080\n'],
    ]);
  });
});

describe('API errors that the command line prints', () => {
  const problem = (pointer: string, message: string) => ({ pointer, code: 'invalid_parameter', message });
  const refused = (code: string, ...problems: { pointer: string; message: string }[]): Answer => ({
    status: 400,
    body: {
      type: `urn:weir:error:${code}`,
      error: `Refused at ${problems[0]?.pointer ?? ''}: ${problems[0]?.message ?? ''}`,
      problems,
    },
  });
  const unclear = 'Required if no other parameter selects flows.';
  const both = 'Not allowed together with parameters that select flows.';
  const dash = 'Must be a port, or a range such as 8000-8100.';

  it.each<[string[], Answer, string]>([
    [
      ['flows', 'cut'],
      refused('invalid_query', problem('?all', unclear)),
      '--all: Required if no other flag selects flows.',
    ],
    [
      ['flows', 'cut', '--all', '--src', '10.0.0.7'],
      refused('invalid_query', problem('?all', both)),
      '--all: Not allowed together with flags that select flows.',
    ],
    [
      ['flows', 'list', '--src-port', 'x', '--min-bytes', '5'],
      refused('invalid_query', problem('?src_port', dash), problem('?min_bytes', 'Must be a whole number.')),
      `2 problems:\n  --src-port: ${dash}\n  --min-bytes: Must be a whole number.`,
    ],
    [
      ['findings', '--type', 'x'],
      refused('invalid_query', problem('?finding_type', 'Must be a type.')),
      '--type: Must be a type.',
    ],
    [
      ['findings', '--policy', 'x'],
      refused('invalid_query', problem('?policy_id', 'This parameter must be given once only.')),
      '--policy: This flag must be given once only.',
    ],
    [
      ['wiretap', '--replay', '1h'],
      refused('invalid_query', problem('?replay', 'No more than the last 5000 ms are kept (wiretap.replay).')),
      '--replay: No more than the last 5000 ms are kept (wiretap.replay).',
    ],
    [
      ['flows', 'cut', '--dry-run'],
      refused('invalid_query', problem('?dry_run', 'There is no parameter "dry_run" here.')),
      '--dry-run: There is no flag --dry-run here.',
    ],
    [
      ['hits'],
      refused('invalid_query', problem('?cursor', 'Another policy came into force: begin without one.')),
      'Another policy came into force: begin without one.',
    ],
    [
      ['token', 'create', '--subject', ' ', '--role', 'admin'],
      refused('invalid_request', problem('/subject', 'subject must not be empty.')),
      '--subject: subject must not be empty.',
    ],
    [
      ['policy', 'explain', '--src', 'x', '--dst', 'y', '--dst-port', '1'],
      refused('invalid_request', problem('/src', 'No address.'), problem('/dst', 'No address.')),
      '2 problems:\n  --src: No address.\n  --dst: No address.',
    ],
  ])('an API error names the flag instead of the API parameter for the command %j', async (words, answer, sentence) => {
    const { url } = await serverThatAnswers(answer);
    const { code, err } = await run([...words, '--server', url], { WEIR_TOKEN: 't' });
    expect([code, err.replace(/\n {2}→ .+\n$/, '\n')]).toEqual([
      sentence.includes('--') ? 2 : 1,
      `weir: ${sentence}\n`,
    ]);
  });

  it.each(Object.keys(ERRORS))('an API error has a remedy without HTTP terms for the error code %s', async (code) => {
    const { url } = await serverThatAnswers({ status: 400, body: { type: `urn:weir:error:${code}`, error: 'No.' } });
    const { err } = await run(['token', 'list', '--server', url], { WEIR_TOKEN: 't' });
    expect(err).toContain('  → ');
    expect(err).not.toMatch(
      /[?][a-z_]+|parameter|problems|detail|\b(GET|PUT|POST|DELETE|HTTP|URL|JSON|UTF-8)\b|If-|Retry-After|Allow|Content-|[Hh]eader|openapi|percent|\/ready|Authorization|subprotocol/,
    );
  });
});

describe('errors with --output json or yaml', () => {
  const refusal: Answer = {
    status: 400,
    body: {
      type: 'urn:weir:error:invalid_query',
      error: 'Invalid query at ?all: Say which.',
      problems: [{ pointer: '?all', code: 'invalid_parameter', message: 'Say which.' }],
    },
  };
  const any = expect.any(String) as string;
  const [config, policy] = ['CONFIG', 'POLICY'];
  const wrong: Answer = {
    status: 400,
    body: {
      type: 'urn:weir:error:invalid_policy',
      error: 'Invalid policy at /source_groups: no list.',
      problems: [{ pointer: '/source_groups', code: 'wrong_type', message: 'no list.' }],
    },
  };

  it.each<[string[], Answer, number, object]>([
    [
      ['flows', 'cut'],
      refusal,
      2,
      {
        code: 'invalid_query',
        message: '--all: Say which.',
        fix: any,
        problems: [{ pointer: '--all', code: 'invalid_parameter', message: 'Say which.' }],
      },
    ],
    [
      ['token', 'list'],
      { status: 502, body: '<html>' },
      1,
      { code: 'failed', message: 'the server answered with 502' },
    ],
    [
      ['token', 'list', '--server', 'http://127.0.0.1:1'],
      refusal,
      1,
      { code: 'unreachable', message: expect.stringContaining('cannot be reached'), fix: any },
    ],
    [
      ['token', 'list', '--config', config],
      refusal,
      1,
      {
        code: 'invalid_config',
        message: 'the configuration is not valid: 1 problem',
        problems: [
          {
            pointer: 'node.data_dir',
            code: 'invalid_value',
            message: any,
            where: expect.stringMatching(/weir\.yaml:2:19$/),
          },
        ],
      },
    ],
    [
      ['policy', 'apply', '--replace', '-f', policy],
      wrong,
      1,
      {
        code: 'invalid_policy',
        message: expect.stringMatching(/policy\.yaml was refused: 1 problem$/),
        fix: any,
        problems: [
          {
            pointer: '/source_groups',
            code: 'wrong_type',
            message: 'no list.',
            where: expect.stringMatching(/policy\.yaml:2:16$/),
          },
        ],
      },
    ],
    [
      ['policy', 'explain', '--src', '10.0.0.7'],
      refusal,
      2,
      { code: 'usage', message: expect.stringContaining('--dst') },
    ],
    [['token', 'revoke'], refusal, 2, { code: 'usage', message: "missing required argument 'token-id'", fix: any }],
    [['token', 'create', '--subject', 'ci'], refusal, 2, { code: 'usage', message: any, fix: any }],
    [['flows', 'lst'], refusal, 2, { code: 'usage', message: any, fix: any }],
    [['flows', '--limit', 'x'], refusal, 2, { code: 'usage', message: any, fix: any }],
    [
      ['polcy'],
      refusal,
      2,
      { code: 'usage', message: "unknown command 'polcy'", fix: 'did you mean policy? `weir --help` shows the usage' },
    ],
  ])(
    'an error with --output json or yaml is printed as one object on standard error for the command %j',
    async (words, answer, exitCode, error) => {
      const { url } = await serverThatAnswers(answer);
      const folder = temporaryFolder();
      const files: Record<string, string> = { CONFIG: join(folder, 'weir.yaml'), POLICY: join(folder, 'policy.yaml') };
      writeFileSync(files.CONFIG ?? '', 'version: 1\nnode: { data_dir: 7 }\n');
      writeFileSync(files.POLICY ?? '', 'default_policy: deny\nsource_groups: 7\n');
      const given = words.map((word) => files[word] ?? word);
      const forms: readonly (readonly [string[], (text: string) => unknown])[] = [
        [['--output', 'json'], (text) => JSON.parse(text) as unknown],
        [['--output=json'], (text) => JSON.parse(text) as unknown],
        [['--output', 'yaml'], (text) => parse(text) as unknown],
      ];
      for (const [flag, read] of forms) {
        const { code, out, err } = await run([...given, ...flag], { WEIR_TOKEN: 't', WEIR_SERVER: url });
        expect({ code, out, ...(read(err) as object) }).toEqual({ code: exitCode, out: '', error });
      }
    },
  );

  it('an error is printed as text if --output names a file', async () => {
    const { url } = await serverThatAnswers(refusal);
    const { err } = await run(['sysdump', '--output', 'json', '--server', url], { WEIR_TOKEN: 't' });
    expect(err).toMatch(/^weir: --all: Say which/);
  });
});

describe('weir command line', () => {
  it('`weir config check` exits with 0 for a valid file, and prints one line per problem of an invalid file', async () => {
    const file = join(temporaryFolder(), 'weir.yaml');
    writeFileSync(file, 'version: 1\n');
    expect(await run(['config', 'check', file])).toEqual({ code: 0, out: `${file} is valid\n`, err: '' });
    writeFileSync(file, 'version: 1\napi: { listen: 0.0.0.0:80 }\npolicy: { fallback: deny }\n');
    expect(await run(['config', 'check', file])).toEqual({
      code: 1,
      out: '',
      err: `weir: the configuration is not valid: 1 problem\n${file}:2:16: api.listen: 0.0.0.0 is not a loopback address, and there is no api.tls: clients would send tokens without encryption\n`,
    });
    expect((await run(['config', 'check', file], { WEIR_API__LISTEN: '127.0.0.1:80' })).code).toBe(0);
  });

  it('`weir config check` prints a warning about a valid file with `non_ipv4: pass` and without `ipv6`', async () => {
    const file = join(temporaryFolder(), 'weir.yaml');
    writeFileSync(file, 'version: 1\ndataplane: { interfaces: [lan0], non_ipv4: pass }\n');
    const { code, out, err } = await run(['config', 'check', file]);
    expect({ code, out }).toEqual({ code: 0, out: `${file} is valid\n` });
    expect(err).toMatch(/^warning: dataplane\.non_ipv4: pass does not pass IPv6, .+\n$/);
  });

  it.each([[['run', '--config', '/no/such/file']], [['dataplane', 'detach', '--config', '/no/such/file']]])(
    'the command line %j exits with 1 and prints the system error if the configuration file cannot be read',
    async (words) => {
      const { code, out, err } = await run(words);
      expect({ code, out }).toEqual({ code: 1, out: '' });
      expect(err).toBe('weir: /no/such/file cannot be read: no such file or directory\n');
    },
  );

  it.each([
    [[]],
    [['unknown']],
    [['run']],
    [['token', 'create', '--subject', 'ci']],
    [['token', 'create', '--subject', 'ci', '--role', 'root']],
    [['token', 'create', '--subject', 'ci', '--role', 'admin', '--expires-in', '500ms']],
    [['token', 'create', '--subject', 'ci', '--role', 'admin', '--expires-in', 'soon']],
    [['token', 'revoke']],
    [['token', 'list', '--output', 'xml']],
  ])('`weir` exits with 2 and prints only to standard error for the invalid arguments %j', async (words) => {
    const { code, out, err } = await run(words);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).not.toBe('');
  });

  it('`weir` names the help of the command that was called wrongly', async () => {
    const { code, err } = await run(['init']);
    expect({ code, err }).toEqual({
      code: 2,
      err: "weir: required option '--interfaces <names>' not specified\n  → `weir init --help` shows the usage\n",
    });
  });

  it('`weir` suggests the command with the most similar name for an unknown command', async () => {
    const { code, err } = await run(['polcy']);
    expect({ code, err }).toEqual({
      code: 2,
      err: "weir: unknown command 'polcy'\n  → did you mean policy? `weir --help` shows the usage\n",
    });
  });

  it.each([
    [
      ['policy', 'diff'],
      ['policy', 'diff', '--help'],
    ],
    [['policy'], ['policy', '--help']],
    [
      ['flows', 'cut'],
      ['flows', 'cut', '--help'],
    ],
    [['findings'], ['findings', '--help']],
    [[], ['--help']],
  ])('`weir help` with the words %j prints the same text as %j', async (words, same) => {
    const shown = await run(['help', ...words]);
    expect(shown).toEqual(await run(same));
    expect([shown.code, shown.err]).toEqual([0, '']);
  });

  it.each([[['policy', 'dif']], [['polcy']], [['findings', 'x']]])(
    '`weir help` with the words %j exits with 2 because that command does not exist',
    async (words) => {
      const { code, out, err } = await run(['help', ...words]);
      expect([code, out]).toEqual([2, '']);
      expect(err).toMatch(/^weir: unknown command '/);
    },
  );

  it('`weir --version` prints the version', async () => {
    expect(await run(['--version'])).toEqual({ code: 0, out: '0.1.0\n', err: '' });
  });

  it('`weir run` exits with 1 and names the data folder that is already in use', async () => {
    const folder = temporaryFolder();
    const file = join(folder, 'weir.yaml');
    writeFileSync(file, `version: 1\nnode: { data_dir: ${folder} }\nlog: { level: silent }\n`);
    const store = await openStore(folder, () => {});
    onTestFinished(() => store.close());
    expect(await run(['run', '--config', file])).toEqual({
      code: 1,
      out: '',
      err: `weir: another weir process uses the data folder ${folder}\n`,
    });
  });

  it.each([
    ['an unknown key', 'surprise: 1', 78, 'surprise: there is no such key'],
    ['a missing file', 'api: { tls: { cert: /no/cert, key: /no/key } }', 1, '/no/cert'],
    [
      'an unknown key and a missing file',
      'surprise: 1\napi: { tls: { cert: /no/cert, key: /no/key } }',
      78,
      'surprise',
    ],
    [
      'a folder that may become a mount of the BPF file system',
      'dataplane: { interfaces: [lo], pin_path: /tmp }',
      1,
      'BPF',
    ],
  ])(
    '`weir run` with a faulty configuration (%s) prints the same error as `weir config check`',
    async (_, line, exit, part) => {
      const file = join(temporaryFolder(), 'weir.yaml');
      writeFileSync(file, `version: 1\nnode: { data_dir: /tmp/none }\n${line}\n`);
      const { code, out, err } = await run(['run', '--config', file]);
      expect({ code, out }).toEqual({ code: exit, out: '' });
      expect(err).toContain(part);
      expect(await run(['config', 'check', file])).toEqual({ code: 1, out: '', err });
    },
  );

  it('`weir --help` lists the commands and the exit codes', async () => {
    const { code, out } = await run(['--help']);
    expect(code).toBe(0);
    for (const command of ['run', 'start', 'policy', 'status', 'wiretap', 'findings', 'completion'])
      expect(out).toContain(`  ${command} `);
    for (const [exit, meaning] of Object.entries(EXIT_CODES)) expect(out).toContain(`  ${exit}  ${meaning}\n`);
  });
});
