import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { temporaryFolder } from '../store/temporary-folder.js';
import { run as runWith, serverThatAnswers } from './cli-run.js';

const run = (words: readonly string[]) => runWith(words, { WEIR_TOKEN: 't' });

const EXAMPLE = { src: '10.1.0.65', dst: '10.9.0.1', proto: 6, dst_port: 22 };
const EXPLAIN = 'weir policy explain --src 10.1.0.65 --dst 10.9.0.1 --proto tcp --dst-port 22';
const noSsh = { id: 'no-ssh', never: { ports: [22] } };
const item = (id: string, result: string, message: string, regions: readonly object[] = []) => ({
  id,
  assertion: { ...noSsh, id },
  result,
  message,
  regions,
  regions_omitted: 0,
});
const LIST = {
  items: [
    item('dns', 'holds', 'the assertion holds'),
    item('no-ssh', 'broken', 'office/ssh passes any → any tcp/22', [{ example: EXAMPLE }]),
    item('ratchet', 'unknown', 'the assertion is being checked; ask again'),
  ],
  revision: 3,
  updated_at: '2026-01-31T12:00:00.000Z',
  updated_by: 'admin',
};
const TEXT = [
  'holds   dns',
  'broken  no-ssh: office/ssh passes any → any tcp/22',
  `        ${EXPLAIN}`,
  'unknown ratchet: the assertion is being checked; ask again',
  '3 assertions, 1 broken, 1 unknown',
];
const fileWith = (text: string): string => {
  const file = join(temporaryFolder(), 'assertions.yaml');
  writeFileSync(file, text);
  return file;
};

describe('`weir assertions`', () => {
  test('`weir assertions list` shows each assertion with its result and an example flow', async () => {
    const { url } = await serverThatAnswers({ status: 200, body: LIST });
    expect(await run(['assertions', 'list', '--server', url])).toEqual({
      code: 0,
      err: '',
      out: [...TEXT, 'ETag "assertions.3"', ''].join('\n'),
    });
  });

  test('`weir assertions get` prints a document that `weir assertions apply` reads', async () => {
    const { url, asked } = await serverThatAnswers({ status: 200, body: LIST });
    const { out } = await run(['assertions', 'get', '--server', url]);
    const applied = await run([
      'assertions',
      'apply',
      '-f',
      fileWith(out),
      '--server',
      url,
      '--if-match',
      'assertions.3',
    ]);
    expect(applied.out).toBe([...TEXT, 'ETag "assertions.3"', ''].join('\n'));
    expect(asked[1]).toMatchObject({
      method: 'PUT',
      path: '/api/v1/assertions',
      ifMatch: '"assertions.3"',
      body: JSON.stringify({ assertions: LIST.items.map(({ assertion }) => assertion) }),
    });
  });

  test('`weir assertions apply --dry-run` changes nothing, and prints that nothing was changed', async () => {
    const { url, asked } = await serverThatAnswers({ status: 200, body: { ...LIST, dry_run: true } });
    const { out } = await run(['assertions', 'apply', '-f', fileWith('assertions: []'), '--dry-run', '--server', url]);
    expect([asked[0]?.path, out.split('\n').at(-2)]).toEqual([
      '/api/v1/assertions?dry_run=true',
      'nothing was changed',
    ]);
  });

  test('`weir assertions apply` prints line and column of each problem', async () => {
    const problem = {
      pointer: '/assertions/1/id',
      code: 'duplicate_id',
      message: 'An earlier assertion has the same id.',
    };
    const body = { type: 'urn:weir:error:invalid_request', error: 'x', problems: [problem] };
    const { url } = await serverThatAnswers({ status: 400, body });
    const file = fileWith('assertions:\n  - {id: a, never: {}}\n  - {id: a, never: {}}\n');
    const { code, err } = await run(['assertions', 'apply', '-f', file, '--server', url]);
    expect([code, err]).toEqual([
      1,
      expect.stringContaining(`${file}:3:10: An earlier assertion has the same id. (/assertions/1/id)`) as string,
    ]);
  });

  test('`weir assertions delete` deletes one assertion', async () => {
    const { url, asked } = await serverThatAnswers({ status: 204, body: undefined });
    expect((await run(['assertions', 'delete', 'no ssh', '--server', url])).out).toBe('no ssh deleted\n');
    expect([asked[0]?.method, asked[0]?.path]).toEqual(['DELETE', '/api/v1/assertions/no%20ssh']);
  });
});

describe('a policy write that an assertion refuses', () => {
  const FAILURE = {
    ...item('no-ssh', 'broken', 'office/ssh passes any → any tcp/22', [{ example: EXAMPLE }]),
    effect: 'refuses',
  };
  const REFUSED = {
    type: 'urn:weir:error:assertion_failed',
    error: 'the write would break the assertion no-ssh.',
    assertions: [FAILURE, { ...FAILURE, id: 'no telnet' }],
  };
  const policyFile = join(tmpdir(), 'weir-office.yaml');
  beforeAll(() => writeFileSync(policyFile, 'default_policy: deny\n'));
  afterAll(() => rmSync(policyFile));

  test('the error of a policy write that an assertion refuses contains the assertion, an example flow and the flag to override it', async () => {
    const { url } = await serverThatAnswers({ status: 409, body: REFUSED });
    expect(await run(['policy', 'apply', '-f', policyFile, '--name', 'office', '--server', url])).toEqual({
      code: 1,
      out: '',
      err: [
        'weir: the write was refused because of 2 assertions:',
        '  no-ssh: office/ssh passes any → any tcp/22',
        `    ${EXPLAIN} -f ${policyFile}`,
        '  no telnet: office/ssh passes any → any tcp/22',
        `    ${EXPLAIN} -f ${policyFile}`,
        "  → change the policy, or give --override no-ssh,'no telnet', which the history records",
        '',
      ].join('\n'),
    });
  });

  test('the JSON error of a policy write that an assertion refuses contains the assertions', async () => {
    const { url } = await serverThatAnswers({ status: 409, body: REFUSED });
    const words = ['policy', 'apply', '-f', policyFile, '--name', 'office', '--server', url, '-o', 'json'];
    expect(JSON.parse((await run(words)).err)).toEqual({
      error: {
        code: 'assertion_failed',
        message: 'the write was refused because of 2 assertions',
        fix: expect.any(String) as string,
        assertions: REFUSED.assertions,
      },
    });
  });

  test.each([
    [['apply', '-f', policyFile, '--name', 'office']],
    [['activate', '--id', '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10']],
    [['rollback', '1', '--id', '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10']],
    [['delete', '--id', '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10']],
  ])('`weir policy %j` sends the ids of the assertions that the write may break', async (words) => {
    const record = {
      ...{ id: '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10', name: 'office', form: 'envelope', mode: 'enforce', revision: 1 },
      ...{
        created_at: '2026-01-31T12:00:00.000Z',
        updated_at: '2026-01-31T12:00:00.000Z',
        updated_by: 'a',
        active: true,
      },
    };
    const { url, asked } = await serverThatAnswers(
      { status: 200, body: { items: [record], ...record, policy: {} } },
      { status: 409, body: REFUSED },
    );
    await run(['policy', ...words, '--server', url, '--override', 'a,b', '--override', 'c d']);
    expect(asked.at(-1)?.path).toContain('override=a&override=b&override=c%20d');
  });
});
