import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { createGunzip } from 'node:zlib';
import { extract } from 'tar-stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { weir } from '#cli/weir.js';
import type { Manifest } from '#observe/sysdump/sysdump.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { createRig, policyOf, type Rig } from './rig.js';

const PLANTED = {
  environment: 'planted-secret-in-the-environment',
  integration: 'planted-secret-of-an-integration',
  privateKey: '-----BEGIN PRIVATE KEY-----\nUExBTlRFRC1TRUNSRVQtSU4tQS1LRVktRklMRQ==\n-----END PRIVATE KEY-----',
};

let rig: Rig;
let apiToken: string;
beforeAll(async () => {
  process.env.PLANTED = PLANTED.environment;
  rig = await createRig('dump', [80, 81], {
    sections: {
      policy: { fallback: 'deny' },
      api: { listen: '127.0.0.1:8080', allowed_hosts: ['${PLANTED}', 'weir.example.com'] },
      dns: { listen: ['10.77.1.1:53'], upstreams: ['10.77.2.2:53'] },
      cluster: undefined,
    },
  });
  delete process.env.PLANTED;
  writeFileSync(join(rig.node.folder, 'data', 'intercept-ca.key'), PLANTED.privateKey, { mode: 0o600 });
  await rig.put(
    policyOf([{ match: { proto: 'tcp', dst_ports: [80] } }, { match: { dns_hostname: 'api.example.com' } }]),
  );
  expect([await rig.tcp(80), await rig.tcp(81)]).toEqual(['open', 'refused ETIMEDOUT']);
  const integration = {
    name: 'cluster-a',
    kind: 'kubernetes',
    api_server_url: 'https://10.0.0.1:6443',
    ca_cert_pem: '',
    service_account_token: PLANTED.integration,
  };
  const made = await rig.node.request('POST', '/api/v1/integrations', integration);
  console.log(made.status, made.text);
  const issued = await rig.node.request('POST', '/api/v1/tokens', { subject: 'ops', role: 'readonly' });
  apiToken = (issued.body as { token: string }).token;
}, 120_000);
afterAll(() => rig?.remove());

async function unpacked(archive: Buffer): Promise<Map<string, { text: string; mode: number | undefined }>> {
  const files = new Map<string, { text: string; mode: number | undefined }>();
  for await (const entry of Readable.from([archive]).pipe(createGunzip()).pipe(extract())) {
    files.set(entry.header.name, { text: await text(entry), mode: entry.header.mode });
  }
  return files;
}

async function dump(): Promise<{ name: string; archive: Buffer }> {
  const answer = await fetch(`${rig.node.url}/api/v1/support/sysdump/cluster`, {
    method: 'POST',
    headers: { authorization: `Bearer ${await rig.node.token()}` },
  });
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'application/gzip']);
  const name = /filename="(.*)"/.exec(answer.headers.get('content-disposition') ?? '')?.[1] ?? '';
  return { name, archive: Buffer.from(await answer.arrayBuffer()) };
}

test('debug', async () => {
  const began = performance.now();
  const { name, archive } = await dump();
  console.log(name, archive.length, performance.now() - began);
  const files = await unpacked(archive);
  for (const [path, { text, mode }] of files) console.log(path, text.length, mode?.toString(8), text.slice(0, 900));
  console.log([...files].at(-1)?.[1].text);
});
