import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { CERTIFICATE, KEY } from '../api/certificate.js';
import { temporaryFolder } from '../store/temporary-folder.js';
import { run, serverThatAnswers } from './cli-run.js';

const ENVIRONMENT = { WEIR_TOKEN: 'a-token' };
const CA = {
  subject: 'CN=Weir intercept CA node-a',
  fingerprint_sha256: 'ab'.repeat(32),
  not_before: '2026-01-01T00:00:00.000Z',
  not_after: '2036-01-01T00:00:00.000Z',
  cert_pem: CERTIFICATE,
  revision: 1,
  updated_at: '2026-01-01T01:00:00.000Z',
  updated_by: 'alice',
};
const PATH = '/api/v1/settings/tls-intercept-ca';
const TEXT = `subject  CN=Weir intercept CA node-a
SHA-256  ${'ab'.repeat(32)}
valid    2026-01-01T00:00:00.000Z to 2036-01-01T00:00:00.000Z
written  2026-01-01T01:00:00.000Z by alice
`;
const problem = (status: number, code: string) => ({
  status,
  body: { type: `urn:weir:error:${code}`, error: 'No.', status, title: 'No', detail: 'no' },
});

describe('weir ca', () => {
  test('`weir ca show` prints the subject, fingerprint and validity of the CA, or all fields with --output json', async () => {
    const { url, asked } = await serverThatAnswers({ status: 200, body: CA });
    expect(await run(['ca', 'show', '--server', url], ENVIRONMENT)).toEqual({ code: 0, out: TEXT, err: '' });
    const json = await run(['ca', 'show', '--server', url, '--output', 'json'], ENVIRONMENT);
    expect(JSON.parse(json.out)).toEqual(CA);
    expect(asked.map(({ method, path }) => `${method} ${path}`)).toEqual([`GET ${PATH}`, `GET ${PATH}`]);
  });

  test('`weir ca generate` sends If-None-Match: *, so that an existing CA is kept, and omits this header with --replace', async () => {
    const { url, asked } = await serverThatAnswers({ status: 201, body: CA });
    expect(await run(['ca', 'generate', '--server', url], ENVIRONMENT)).toEqual({ code: 0, out: TEXT, err: '' });
    await run(['ca', 'generate', '--replace', '--server', url], ENVIRONMENT);
    expect(asked.map(({ method, path, ifNoneMatch }) => [method, path, ifNoneMatch])).toEqual([
      ['POST', `${PATH}/generate`, '*'],
      ['POST', `${PATH}/generate`, undefined],
    ]);
  });

  test('`weir ca generate` exits with 1 and names the flag --replace if the node already has a CA', async () => {
    const { url } = await serverThatAnswers(problem(412, 'precondition_failed'));
    const { code, err } = await run(['ca', 'generate', '--server', url], ENVIRONMENT);
    expect([code, err]).toEqual([
      1,
      'weir: an intercept CA exists already\n  → give --replace, and install the certificate of the new CA on clients\n',
    ]);
  });

  test('`weir ca install` sends the content of the certificate and key files, and prints the warnings of the node', async () => {
    const warnings = [{ pointer: '/cert_pem', code: 'ca_not_valid_yet', message: 'Not yet.' }];
    const { url, asked } = await serverThatAnswers({ status: 200, body: { ...CA, warnings } });
    const folder = temporaryFolder();
    const [cert, key] = [join(folder, 'ca.pem'), join(folder, 'ca.key')];
    writeFileSync(cert, CERTIFICATE);
    writeFileSync(key, KEY);
    const words = ['ca', 'install', '--cert', cert, '--key', key, '--server', url];
    expect(await run(words, ENVIRONMENT)).toEqual({ code: 0, out: TEXT, err: 'warning: Not yet.\n' });
    expect(asked.map(({ method, path, body, ifNoneMatch }) => [method, path, JSON.parse(body), ifNoneMatch])).toEqual([
      ['PUT', PATH, { cert_pem: CERTIFICATE, key_pem: KEY }, '*'],
    ]);
  });

  test('`weir ca install` exits with 1, names the file that cannot be read, and sends no request', async () => {
    const { url, asked } = await serverThatAnswers({ status: 200, body: CA });
    const words = ['ca', 'install', '--cert', '/nowhere/ca.pem', '--key', '/nowhere/ca.key', '--server', url];
    const { code, err } = await run(words, ENVIRONMENT);
    expect([code, err, asked]).toEqual([1, 'weir: /nowhere/ca.pem cannot be read: no such file or directory\n', []]);
  });

  test('`weir ca cert` prints the certificate of the CA, or writes the certificate to the file that -f names', async () => {
    const { url } = await serverThatAnswers({ status: 200, body: CA });
    expect((await run(['ca', 'cert', '--server', url], ENVIRONMENT)).out).toBe(CERTIFICATE);
    const file = join(temporaryFolder(), 'ca.pem');
    expect((await run(['ca', 'cert', '--server', url, '-f', file], ENVIRONMENT)).out).toBe('');
    expect(readFileSync(file, 'utf8')).toBe(CERTIFICATE);
    const nowhere = await run(['ca', 'cert', '--server', url, '-f', '/nowhere/ca.pem'], ENVIRONMENT);
    expect([nowhere.code, existsSync('/nowhere/ca.pem')]).toEqual([1, false]);
  });

  test('`weir ca remove` deletes the CA, or exits with 1 and a remedy if the node has no CA', async () => {
    const { url, asked } = await serverThatAnswers({ status: 204, body: undefined }, problem(404, 'not_found'));
    const words = ['ca', 'remove', '--server', url];
    expect(await run(words, ENVIRONMENT)).toEqual({ code: 0, out: 'the intercept CA is removed\n', err: '' });
    expect(await run(words, ENVIRONMENT)).toEqual({
      code: 1,
      out: '',
      err: 'weir: there is no intercept CA\n  → `weir ca generate` generates a CA; `weir ca install` installs a CA that was made elsewhere\n',
    });
    expect(asked.map(({ method }) => method)).toEqual(['DELETE', 'DELETE']);
  });
});
