import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Api } from '#api/api.js';
import type { ConsoleFile } from '#api/console/console-files.js';
import { createApi } from '#api/server.js';
import { fakeManagement } from './fake-management.js';

const fileOf = (text: string, contentType: string, isImmutable: boolean): ConsoleFile => ({
  contentType,
  gzip: gzipSync(text),
  etag: `"${text}"`,
  isImmutable,
});
const files = new Map([
  ['index.html', fileOf('page', 'text/html; charset=utf-8', false)],
  ['assets/a-1.js', fileOf('code', 'text/javascript; charset=utf-8', true)],
]);

let api: Api;
beforeAll(async () => {
  api = await createApi(fakeManagement(), { version: '0.1.0', console: files });
});
afterAll(async () => {
  await api.close();
});

const get = (url: string, headers: Readonly<Record<string, string>> = {}) => api.inject({ url, headers });

test('each path of a page of the console returns its document, without a token', async () => {
  for (const path of ['', 'why', 'policy/', 'policy/history']) {
    const { statusCode, body, headers } = await get(`/console/${path}?src=10.0.0.1`);
    expect([path, statusCode, body, headers['content-type'], headers['cache-control']]).toEqual([
      path,
      200,
      'page',
      'text/html; charset=utf-8',
      'no-cache',
    ]);
  }
});

test('a file of the console whose name has a hash is immutable, and an unknown file is 404', async () => {
  const { statusCode, body, headers } = await get('/console/assets/a-1.js');
  expect([statusCode, body, headers['cache-control']]).toEqual([200, 'code', 'public, max-age=31536000, immutable']);
  for (const path of ['assets/a-2.js', '../package.json', '%2e%2e/package.json', 'assets/a-1.js.gz'])
    expect([path, (await get(`/console/${path}`)).statusCode]).toEqual([path, 404]);
});

test('the console is sent compressed to clients that accept gzip, and 304 if it is unchanged', async () => {
  const accepted = async (value: string) =>
    (await get('/console/', { 'accept-encoding': value })).headers['content-encoding'];
  expect(await accepted('gzip, br')).toBe('gzip');
  expect(await accepted('br;q=1.0, gzip;q=0.5')).toBe('gzip');
  expect(await accepted('gzip;q=0')).toBeUndefined();
  expect(await accepted('br')).toBeUndefined();
  const { statusCode, body } = await get('/console/', { 'if-none-match': '"page"' });
  expect([statusCode, body]).toEqual([304, '']);
});

test('the console has a content security policy that permits scripts and styles of the node only', async () => {
  const policy = String((await get('/console/')).headers['content-security-policy']);
  expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
  expect(policy).toContain("require-trusted-types-for 'script'");
  expect(policy).not.toContain('unsafe');
  expect((await get('/health')).headers['content-security-policy']).toBe("default-src 'none'; frame-ancestors 'none'");
});

test('the root of the API leads to the console, and both are 404 without the console', async () => {
  const { statusCode, headers } = await get('/');
  expect([statusCode, headers.location]).toEqual([302, '/console/']);
  const without = await createApi(fakeManagement(), { version: '0.1.0', console: null });
  for (const url of ['/', '/console', '/console/'])
    expect([url, (await without.inject({ url })).statusCode]).toEqual([url, 404]);
  await without.close();
});
