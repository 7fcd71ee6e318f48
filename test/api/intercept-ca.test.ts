import { X509Certificate } from 'node:crypto';
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { firstValueFrom } from 'rxjs';
import { describe, expect, test } from 'vitest';
import type { Management } from '#api/management.js';
import { generateCa } from '#service-plane/ca/generate-ca.js';
import { type InterceptCaMaterial, interceptCaOver } from '#service-plane/ca/intercept-ca-setting.js';
import { openStore } from '#store/store.js';
import { openMemoryStore } from '#test/store/memory-store.js';
import { foundIn, tracesOf } from '../service-plane/ca/traces.js';
import { temporaryFolder } from '../store/temporary-folder.js';
import { CERTIFICATE, KEY } from './certificate.js';
import { fakeManagement, TOKENS } from './fake-management.js';
import { rig } from './rig.js';

const PATH = '/api/v1/settings/tls-intercept-ca';
const given = generateCa({ commonName: 'given', days: 30 });
const body = {
  cert_pem: given.certPem,
  key_pem: given.key.export({ type: 'pkcs8', format: 'pem' }) as string,
};

/**
 * Starts an API with the real intercept CA setting. `told` lists the CA values that the setting has sent to
 * the service plane.
 */
async function real(store?: Awaited<ReturnType<typeof openMemoryStore>>) {
  const interceptCa = await interceptCaOver((store ?? (await openMemoryStore())).interceptCa, 'node-a');
  const told: (InterceptCaMaterial | null)[] = [];
  interceptCa.changed.subscribe((material) => told.push(material));
  const made = await rig({}, fakeManagement({ interceptCa } satisfies Partial<Management>));
  return { ...made, told, subjects: () => told.map((one) => (one?.kind === 'ca' ? one.ca.subject : one)) };
}

describe('intercept CA', () => {
  test('an intercept CA can be created, read, replaced and removed, and the service plane and the stats follow each change', async () => {
    const { ask, subjects } = await real();
    const isStored = async () => (await ask('GET', '/api/v1/stats')).json().tls.intercept_ca;
    expect(await isStored()).toBe(false);
    expect((await ask('GET', PATH)).json().type).toBe('urn:weir:error:not_found');
    expect((await ask('GET', `${PATH}/cert`)).statusCode).toBe(404);
    expect((await ask('DELETE', PATH)).statusCode).toBe(404);

    const made = await ask('POST', `${PATH}/generate`, { headers: { 'if-none-match': '*' } });
    const ca = made.json<{ cert_pem: string; updated_at: string }>();
    const certificate = new X509Certificate(ca.cert_pem);
    expect([made.statusCode, made.headers.etag, made.headers.location, ca]).toEqual([
      201,
      '"tls-intercept-ca.1"',
      PATH,
      {
        subject: 'CN=Weir intercept CA node-a',
        fingerprint_sha256: certificate.fingerprint256.replaceAll(':', '').toLowerCase(),
        not_before: new Date(certificate.validFrom).toISOString(),
        not_after: new Date(certificate.validTo).toISOString(),
        cert_pem: ca.cert_pem,
        revision: 1,
        updated_at: ca.updated_at,
        updated_by: 'alice',
      },
    ]);
    const read = await ask('GET', PATH, { token: TOKENS.readonly });
    expect([read.json(), read.headers.etag]).toEqual([ca, '"tls-intercept-ca.1"']);
    expect(await isStored()).toBe(true);
    expect((await ask('GET', PATH, { headers: { 'if-none-match': '"tls-intercept-ca.1"' } })).statusCode).toBe(304);

    const put = await ask('PUT', PATH, { body, headers: { 'if-match': '"tls-intercept-ca.1"' } });
    expect([put.statusCode, put.headers.etag, put.json().subject, put.json().warnings]).toEqual([
      200,
      '"tls-intercept-ca.2"',
      'CN=given',
      [],
    ]);
    expect((await ask('DELETE', PATH, { headers: { 'if-match': '"tls-intercept-ca.1"' } })).statusCode).toBe(412);
    const removed = await ask('DELETE', PATH, { headers: { 'if-match': '"tls-intercept-ca.2"' } });
    expect([removed.statusCode, removed.body]).toEqual([204, '']);
    expect(await isStored()).toBe(false);
    expect(subjects()).toEqual([null, 'CN=Weir intercept CA node-a', 'CN=given', null]);
  });

  test('an intercept CA is not replaced if the If-Match or If-None-Match header of the write does not match', async () => {
    const { ask, subjects } = await real();
    await ask('PUT', PATH, { body });
    const late = { headers: { 'if-none-match': '*' } };
    expect((await ask('PUT', PATH, { body, ...late })).statusCode).toBe(412);
    expect((await ask('POST', `${PATH}/generate`, late)).statusCode).toBe(412);
    expect((await ask('POST', `${PATH}/generate`, { headers: { 'if-match': '"x.1"' } })).statusCode).toBe(412);
    expect(subjects()).toEqual([null, 'CN=given']);
  });

  test('an intercept CA can be downloaded as a PEM file for installation on clients', async () => {
    const { ask } = await real();
    await ask('PUT', PATH, { body });
    const file = await ask('GET', `${PATH}/cert`, { token: TOKENS.readonly });
    expect([file.statusCode, file.headers['content-type'], file.headers['content-disposition'], file.body]).toEqual([
      200,
      'application/x-pem-file',
      'attachment; filename="weir-intercept-ca.pem"',
      given.certPem,
    ]);
  });

  test('an intercept CA is refused with a list of problems if the private key does not belong to the certificate', async () => {
    const { ask, subjects } = await real();
    const answer = await ask('PUT', PATH, { body: { cert_pem: CERTIFICATE, key_pem: body.key_pem } });
    expect([answer.statusCode, answer.json().type, answer.json().problems]).toEqual([
      400,
      'urn:weir:error:invalid_ca',
      [
        {
          pointer: '/key_pem',
          code: 'invalid_value',
          message: 'Must be the key of the first certificate of `cert_pem`.',
        },
      ],
    ]);
    expect(subjects()).toEqual([null]);
  });

  test('an intercept CA can be written and removed only with a token of the role admin', async () => {
    const { ask, subjects } = await real();
    const token = TOKENS.readonly;
    const answers = [
      await ask('PUT', PATH, { token, body }),
      await ask('DELETE', PATH, { token }),
      await ask('POST', `${PATH}/generate`, { token }),
    ];
    expect(answers.map(({ statusCode }) => statusCode)).toEqual([403, 403, 403]);
    expect(subjects()).toEqual([null]);
  });

  test('a write of an intercept CA is recorded in the audit trail with the ETag, but without certificate and private key', async () => {
    const { ask, node } = await real();
    await ask('PUT', PATH, { body });
    await ask('POST', `${PATH}/generate`);
    await ask('DELETE', PATH);
    const by = { type: 'config_change', actor: 'alice', remote: '127.0.0.1' };
    expect(node.recorded).toEqual([
      { ...by, operation: 'putTlsInterceptCa', target: PATH, status: 200, etag: '"tls-intercept-ca.1"' },
      {
        ...by,
        operation: 'generateTlsInterceptCa',
        target: `${PATH}/generate`,
        status: 201,
        etag: '"tls-intercept-ca.2"',
      },
      { ...by, operation: 'deleteTlsInterceptCa', target: PATH, status: 204, etag: null },
    ]);
  });
});

test('the private key of the intercept CA appears in no response, no file of the data folder and no audit record', async () => {
  const dataDir = temporaryFolder();
  const store = await openStore(dataDir, () => {});
  const { ask, node, told } = await real(store);
  const traces = [...tracesOf(given.key), ...(KEY.match(/^[^-].{40,}$/gm) ?? [])];
  const answers = [
    await ask('PUT', PATH, { body }),
    await ask('GET', PATH),
    await ask('GET', `${PATH}/cert`),
    // Bodies with a fault: the key as certificate, the certificate of another key, the key of another
    // certificate, a truncated key, a key in an array, invalid JSON.
    await ask('PUT', PATH, { body: { cert_pem: body.key_pem, key_pem: body.key_pem } }),
    await ask('PUT', PATH, { body: { cert_pem: CERTIFICATE, key_pem: body.key_pem } }),
    await ask('PUT', PATH, { body: { cert_pem: given.certPem, key_pem: KEY } }),
    await ask('PUT', PATH, { body: { cert_pem: given.certPem, key_pem: body.key_pem.slice(0, -20) } }),
    await ask('PUT', PATH, { body: { cert_pem: given.certPem, key_pem: [body.key_pem] } }),
    await ask('PUT', PATH, { body: `{"key_pem": ${JSON.stringify(body.key_pem)}` }),
    await ask('GET', '/api/v1/stats'),
    await ask('GET', '/metrics'),
  ];
  await store.close();
  for (const answer of answers) expect(foundIn(answer.body, traces)).toEqual([]);
  expect(foundIn(JSON.stringify(node.recorded), traces)).toEqual([]);
  for (const file of readdirSync(dataDir, { recursive: true, withFileTypes: true })) {
    if (!file.isFile()) continue;
    expect([file.name, foundIn(readFileSync(join(file.parentPath, file.name)), traces)]).toEqual([file.name, []]);
  }
  // The service plane receives the key as a `KeyObject`. The JSON text of this message must not contain the
  // key.
  const last = told.at(-1);
  expect(last?.kind === 'ca' && last.ca.key.equals(given.key)).toBe(true);
  expect(foundIn(JSON.stringify(told), traces)).toEqual([]);
});

test('a restarted node loads the stored intercept CA, and reports the CA as unreadable if the seal key is missing', async () => {
  const dataDir = temporaryFolder();
  const begin = async () => {
    const store = await openStore(dataDir, () => {});
    const setting = await interceptCaOver(store.interceptCa, 'node-a');
    return { store, setting, material: await firstValueFrom(setting.changed) };
  };
  const first = await begin();
  expect(first.material).toBeNull();
  await first.setting.generate({ author: 'ops' });
  await first.store.close();

  const second = await begin();
  const view = await second.setting.read();
  expect(second.material?.kind === 'ca' && second.material.ca.fingerprint).toBe(view?.fingerprint_sha256);
  await second.store.close();

  rmSync(join(dataDir, 'seal.key'));
  const third = await begin();
  expect(third.material).toEqual({
    kind: 'unreadable',
    reason: `read ${join(dataDir, 'seal.key')}: the file does not exist`,
  });
  expect(await third.setting.read()).toEqual(view);
  expect((await third.setting.generate({ author: 'ops' })).kind).toBe('written');
  expect((await firstValueFrom(third.setting.changed))?.kind).toBe('ca');
  await third.store.close();
});
