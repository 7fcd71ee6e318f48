import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { ApiSession } from '#kubernetes/api-server/api-session.js';
import { run, serverThatAnswers } from '#test/cli/cli-run.js';
import { HAS_KUBE_API, KubeApi } from '#test/kubernetes/kube-api.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';

const ENVIRONMENT = { WEIR_TOKEN: 'a-token' };
const DEADLINES = { headersMs: 5_000, bodyMs: 5_000, silenceMs: 5_000 };
const CREATED = 'created the service account weir-gateway/weir-gateway, which may read pods, nodes and namespaces\n';

/** The answers of a node that has no integration, and stores one. */
async function node(kube: KubeApi) {
  const at = '2026-02-01T12:00:00.000Z';
  const integration = { name: 'prod', kind: 'kubernetes', in_cluster: false, api_server_url: kube.url };
  const stamps = { ca_cert_pem: kube.certificate.ca, revision: 1, created_at: at, updated_at: at, updated_by: 'alice' };
  const { url, asked } = await serverThatAnswers(
    { status: 404, body: { type: 'urn:weir:error:not_found', error: 'No.' } },
    { status: 201, body: { ...integration, ...stamps, warnings: [] } },
  );
  const token = () => (JSON.parse(asked[1]?.body ?? '{}') as { service_account_token: string }).service_account_token;
  return { url, asked, token };
}

skipUnless(HAS_KUBE_API, LACKS.kubeApi).describe('weir integration add --create-account with a real API server', () => {
  let kube: KubeApi;
  beforeAll(async () => {
    kube = await KubeApi.start();
  });
  afterAll(() => kube.remove());

  function kubeconfig(user: Readonly<Record<string, string>>): string {
    const file = join(kube.folder, 'kubeconfig');
    writeFileSync(file, JSON.stringify(kube.kubeconfig(user)));
    return file;
  }
  const add = (url: string, user: Readonly<Record<string, string>>, ...more: string[]) =>
    run(
      ['integration', 'add', 'prod', '--kubeconfig', kubeconfig(user), '--create-account', '--server', url, ...more],
      ENVIRONMENT,
    );
  const administrator = () => kube.administrator();
  /** Returns the status with which the server answers requests with a token. */
  const statusOf = async (token: string, method: string, path: string) =>
    (await kube.send(method, path, method === 'GET' ? undefined : {}, token)).status;

  it('`weir integration add --create-account` makes an account that may only read pods, nodes and namespaces, with a client certificate', async () => {
    const { url, token } = await node(kube);
    const added = await add(url, administrator());
    expect([added.code, added.out]).toEqual([0, `stored prod: ${kube.url}/\n`]);
    expect(added.err).toMatch(
      new RegExp(`^${CREATED}its token is valid until \\S+; renew it with --create-account --replace\n$`),
    );
    for (const resource of ['pods', 'nodes', 'namespaces'])
      expect(await statusOf(token(), 'GET', `/api/v1/${resource}?limit=1`)).toBe(200);
    for (const [method, path] of [
      ['GET', '/api/v1/secrets'],
      ['GET', '/api/v1/configmaps'],
      ['POST', '/api/v1/namespaces/weir-gateway/serviceaccounts/weir-gateway/token'],
      ['DELETE', '/api/v1/namespaces/weir-gateway'],
      ['PATCH', '/api/v1/nodes/n1'],
    ] as const)
      expect([method, path, await statusOf(token(), method, path)]).toEqual([method, path, 403]);
  });

  it('the node reaches the API server with the token and CA that `weir integration add --create-account` stored', async () => {
    const { url, token } = await node(kube);
    await add(url, { token: 'admin-token' });
    const session = await ApiSession.open(kube.as(token), DEADLINES, new AbortController().signal);
    expect(await session.get('/api/v1/pods?limit=1')).toMatchObject({ kind: 'PodList' });
    session.close();
  });

  it('`weir integration add --create-account` can be repeated without an error, and requests a token of another lifetime', async () => {
    const { url, token } = await node(kube);
    const added = await add(url, { token: 'admin-token' }, '--lifetime', '2h');
    expect(added.code).toBe(0);
    const claims = JSON.parse(Buffer.from(token().split('.')[1] ?? '', 'base64url').toString());
    expect(claims.exp - claims.iat).toBe(7_200);
  });

  it('`weir integration add --create-account --long-lived` stores a token without expiry after Kubernetes has made the token', async () => {
    const { url, token } = await node(kube);
    // No controller runs here, so the test stores the token in the secret.
    const path = '/api/v1/namespaces/weir-gateway/secrets/weir-gateway-token';
    const controller = (async () => {
      while ((await kube.send('GET', path)).status !== 200) await pause(20);
      await kube.must('PATCH', path, { data: { token: Buffer.from('eyJ.long.lived').toString('base64') } });
    })();
    const added = await add(url, { token: 'admin-token' }, '--long-lived');
    await controller;
    expect([added.code, added.err, token()]).toEqual([0, CREATED, 'eyJ.long.lived']);
  });

  it('`weir integration add --create-account` prints the error of the server and a remedy if the user may not create the account', async () => {
    const reader = await kube.createAccount('reader', ['pods']);
    const { url, asked } = await node(kube);
    const { code, err } = await add(url, { token: reader });
    expect(code).toBe(1);
    expect(err).toMatch(
      /^weir: create Namespace weir-gateway: the API server answered 403: .*"system:serviceaccount:default:reader" cannot patch/,
    );
    expect(err).toMatch(/→ give a kubeconfig of a cluster administrator, or let one apply the output of --print\n$/);
    expect(asked.map(({ method }) => method)).toEqual(['GET']);
  });

  it('`weir integration add --create-account --print` prints objects that kubectl applies', async () => {
    const printed = await run(
      ['integration', 'add', 'x', '--kubeconfig', '/nowhere', '--create-account', '--print', '--namespace', 'other'],
      ENVIRONMENT,
    );
    expect(parseAllDocuments(printed.out)).toHaveLength(4);
    const file = join(kube.folder, 'account.yaml');
    writeFileSync(file, printed.out);
    const applied = await kube.kubectl('apply', '-f', file);
    expect(applied).toMatch(/serviceaccount\/weir-gateway created/);
    expect(await kube.kubectl('apply', '-f', file)).toMatch(/serviceaccount\/weir-gateway unchanged/);
  });
});
