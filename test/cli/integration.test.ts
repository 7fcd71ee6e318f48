import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { CERTIFICATE } from '../api/certificate.js';
import { temporaryFolder } from '../store/temporary-folder.js';
import { clockAt, run, serverThatAnswers } from './cli-run.js';

const ENVIRONMENT = { WEIR_TOKEN: 'a-token' };
const AT = '2026-02-01T12:00:00.000Z';
const PATH = '/api/v1/integrations';
const prod = {
  ...{ name: 'prod', kind: 'kubernetes', in_cluster: false, api_server_url: 'https://kube.example.com:6443' },
  ...{ ca_cert_pem: CERTIFICATE, revision: 1, created_at: AT, updated_at: AT, updated_by: 'alice' },
};
const local = { name: 'local', kind: 'kubernetes', in_cluster: true };
const problem = (status: number, code: string) => ({
  status,
  body: { type: `urn:weir:error:${code}`, error: 'No.', status, title: 'No', detail: 'no' },
});
const ABSENT = problem(404, 'not_found');

type Part = Readonly<Record<string, unknown>>;
const CA_DATA = { 'certificate-authority-data': Buffer.from(CERTIFICATE).toString('base64') };

/** Writes a kubeconfig with the contexts `one`, which is current, and `two`. Returns its path. */
function kubeconfig(user: Part, cluster: Part = CA_DATA, files: Readonly<Record<string, string>> = {}): string {
  const folder = temporaryFolder();
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const file = join(folder, 'config');
  const content = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'one',
    contexts: [
      { name: 'one', context: { cluster: 'c', user: 'u' } },
      { name: 'two', context: { cluster: 'c', user: 'other', namespace: 'shop' } },
    ],
    clusters: [{ name: 'c', cluster: { server: 'https://kube.example.com:6443', ...cluster } }],
    users: [
      { name: 'u', user },
      { name: 'other', user: { token: 'of-two' } },
    ],
  };
  writeFileSync(file, JSON.stringify(content));
  return file;
}
const add = (file: string, url: string, ...more: string[]) =>
  run(['integration', 'add', 'prod', '--kubeconfig', file, '--server', url, ...more], ENVIRONMENT);

describe('weir integration add', () => {
  test('`weir integration add` creates Kubernetes objects that are in no manifest of the DaemonSet, so that its removal leaves them', async () => {
    const printed = await add(kubeconfig({}), 'http://127.0.0.1:1', '--create-account', '--print', '--long-lived');
    const nameOf = ({ kind, metadata }: { kind: string; metadata: { name: string; namespace?: string } }) =>
      `${kind} ${metadata.namespace ?? ''}/${metadata.name}`;
    const created = parseAllDocuments(printed.out).map((document) => document.toJS());
    expect(created.map(nameOf)).toContain('ServiceAccount weir-gateway/weir-gateway');
    const folder = new URL('../../deploy/kubernetes/base/', import.meta.url);
    const files = ['namespace.yaml', 'rbac.yaml', 'policy.yaml', 'daemonset.yaml'];
    const own = files.flatMap((file) =>
      parseAllDocuments(readFileSync(new URL(file, folder), 'utf8')).map((document) => document.toJS()),
    );
    const namespaces = own.filter(({ kind }) => kind === 'Namespace').map(({ metadata }) => metadata.name);
    expect(created.filter(({ metadata }) => namespaces.includes(metadata.namespace))).toEqual([]);
    const names = own.map(nameOf);
    expect(created.map(nameOf).filter((name) => names.includes(name))).toEqual([]);
  });

  test('`weir integration add` stores the server, the CA and the token of the current context of a kubeconfig', async () => {
    const warnings = [{ pointer: '/service_account_token', code: 'token_expires', message: 'Soon.' }];
    const { url, asked } = await serverThatAnswers(ABSENT, { status: 201, body: { ...prod, warnings } });
    expect(await add(kubeconfig({ token: 'of-one' }), url)).toEqual({
      code: 0,
      out: 'stored prod: https://kube.example.com:6443\n',
      err: 'warning: Soon.\n',
    });
    expect(asked.map(({ method, path }) => `${method} ${path}`)).toEqual([`GET ${PATH}/prod`, `POST ${PATH}`]);
    expect(JSON.parse(asked[1]?.body ?? '')).toEqual({
      name: 'prod',
      kind: 'kubernetes',
      api_server_url: 'https://kube.example.com:6443',
      ca_cert_pem: CERTIFICATE,
      service_account_token: 'of-one',
    });
  });

  test('`weir integration add` accepts another context, and a CA and a token in files beside the kubeconfig', async () => {
    const { url, asked } = await serverThatAnswers({ status: 200, body: { ...prod, warnings: [], dry_run: true } });
    const files = { 'ca.pem': CERTIFICATE, 'token.txt': 'of-file\n' };
    const file = kubeconfig({ tokenFile: 'token.txt' }, { 'certificate-authority': 'ca.pem' }, files);
    const dry = await add(file, url, '--replace', '--dry-run');
    expect(dry).toEqual({ code: 0, out: 'prod would be stored: https://kube.example.com:6443\n', err: '' });
    await add(file, url, '--replace', '--context', 'two');
    await add(file, url, '--replace', '--account-token', join(file, '../token.txt'));
    expect(asked.map(({ method, path, body }) => [method, path, JSON.parse(body).service_account_token])).toEqual([
      ['PUT', `${PATH}/prod?dry_run=true`, 'of-file'],
      ['PUT', `${PATH}/prod`, 'of-two'],
      ['PUT', `${PATH}/prod`, 'of-file'],
    ]);
    expect(JSON.parse(asked[0]?.body ?? '').ca_cert_pem).toBe(CERTIFICATE);
  });

  test('`weir integration add` creates nothing if the node already has an integration with this name, or has it in its configuration', async () => {
    const taken = await serverThatAnswers({ status: 200, body: prod });
    const file = kubeconfig({ token: 'of-one' }, { ...CA_DATA, server: 'https://127.0.0.1:1' });
    expect(await add(file, taken.url, '--create-account')).toEqual({
      code: 1,
      out: '',
      err: 'weir: there is an integration named prod already\n  → give --replace, or another name\n',
    });
    const { url } = await serverThatAnswers(problem(409, 'integration_read_only'));
    expect((await add(kubeconfig({ token: 'of-one' }), url, '--replace')).err).toMatch(/kubernetes\.in_cluster/);
  });

  const EXEC = { exec: { apiVersion: 'client.authentication.k8s.io/v1', command: 'aws' } };
  test.each([
    [
      'a client certificate',
      { 'client-certificate-data': 'YQ==', 'client-key-data': 'YQ==' },
      [],
      /has a client certificate; an integration needs a token\n {2}→ give --create-account/,
    ],
    [
      'an exec plugin',
      EXEC,
      [],
      /has exec; an integration needs a token\n {2}→ apply the output of --create-account --print/,
    ],
    [
      'an exec plugin for --create-account',
      EXEC,
      ['--create-account'],
      /has exec, which only kubectl can use\n {2}→ add --print/,
    ],
    ['no user', {}, [], /has no token and no client certificate; an integration/],
    [
      'an unknown context',
      { token: 'x' },
      ['--context', 'three'],
      /has no context three\n {2}→ give --context with one of: one, two/,
    ],
    ['a missing file', { tokenFile: 'nowhere' }, [], /nowhere cannot be read: no such file/],
  ])(
    '`weir integration add` refuses a kubeconfig or flags without usable credentials (%s), and prints a remedy',
    async (_, user, flags, error) => {
      const { url } = await serverThatAnswers(ABSENT);
      const { code, out, err } = await add(kubeconfig(user), url, ...flags);
      expect([code, out]).toEqual([1, '']);
      expect(err).toMatch(error);
    },
  );

  test.each([
    [
      'insecure-skip-tls-verify',
      { ...CA_DATA, 'insecure-skip-tls-verify': true },
      /insecure-skip-tls-verify; Weir always verifies/,
    ],
    ['a proxy', { ...CA_DATA, 'proxy-url': 'http://proxy:3128' }, /proxy-url/],
    ['another server name', { ...CA_DATA, 'tls-server-name': 'kube' }, /tls-server-name/],
    ['no TLS', { ...CA_DATA, server: 'http://kube.example.com' }, /not an https:\/\/ URL/],
    ['no CA', {}, /no certificate-authority; the node trusts only the CA of an integration\n {2}→ add the CA/],
  ])(
    '`weir integration add` refuses a kubeconfig with a cluster that the node could not verify or reach, because of %s',
    async (_, cluster, error) => {
      const { url, asked } = await serverThatAnswers(ABSENT);
      expect((await add(kubeconfig({ token: 'x' }, cluster), url)).err).toMatch(error);
      expect(asked).toEqual([]);
    },
  );

  test('`weir integration add` refuses files that are no kubeconfig, and flags that contradict each other', async () => {
    const file = join(temporaryFolder(), 'config');
    for (const [text, error] of [
      ['a: [', /is not valid YAML: /],
      ['[]', /is not a kubeconfig: /],
      ['{}', /has no current context/],
      ['contexts: [{ name: 1 }]', /is not a kubeconfig: contexts\.0\.name: /],
      [
        '{ current-context: a, contexts: [{ name: a, context: { cluster: c } }] }',
        /has no cluster c, which the context a names/,
      ],
    ] as const) {
      writeFileSync(file, text);
      expect((await add(file, 'http://127.0.0.1:1')).err).toMatch(error);
    }
    for (const flags of [
      ['--create-account', '--account-token', file],
      ['--create-account', '--dry-run'],
      ['--print'],
      ['--long-lived'],
      ['--create-account', '--lifetime', '5m'],
      ['--create-account', '--namespace', 'Weir'],
      ['--create-account', '--namespace', 'weir-system'],
    ])
      expect((await add(file, 'http://127.0.0.1:1', ...flags)).code).toBe(2);
  });

  test('`weir integration add --create-account --print` prints the objects of the account, and sends no request', async () => {
    const printed = await add(kubeconfig(EXEC), 'http://127.0.0.1:1', '--create-account', '--print', '--long-lived');
    const objects = parseAllDocuments(printed.out).map((document) => document.toJS());
    expect([printed.code, printed.err, objects.map(({ kind }) => kind)]).toEqual([
      0,
      '',
      ['Namespace', 'ServiceAccount', 'ClusterRole', 'ClusterRoleBinding', 'Secret'],
    ]);
    expect(objects[2].rules).toEqual([
      { apiGroups: [''], resources: ['pods', 'nodes', 'namespaces'], verbs: ['get', 'list', 'watch'] },
    ]);
  });
});

describe('weir integration', () => {
  const status = {
    name: 'prod',
    state: 'refused.forbidden',
    since: '2026-02-01T11:57:00.000Z',
    last_error: { reflector: 'nodes', reason: '403: nodes is forbidden', at: '2026-02-01T11:58:00.000Z' },
    objects: { pods: 120, nodes: 0, namespaces: 9 },
    selectors: [
      {
        selector: { integration: 'prod', pod_selector: { namespace: 'shop' } },
        resolved: true,
        addresses: 12,
        networks: 0,
      },
      { selector: { integration: 'prod', node_selector: {} }, resolved: false, addresses: 0, networks: 0 },
      {
        selector: { integration: 'prod', node_selector: { addresses: ['podCIDRs'] } },
        resolved: true,
        addresses: 0,
        networks: 3,
      },
    ],
    warnings: [{ code: 'pods_not_closed', message: 'New pods are not deny-only.' }],
    stale: true,
  };

  test('`weir integration list` shows the stored integrations and the integration in the configuration', async () => {
    clockAt('2026-02-01T12:03:00Z');
    const { url } = await serverThatAnswers({ status: 200, body: { items: [local, prod] } });
    expect((await run(['integration', 'list', '--server', url], ENVIRONMENT)).out).toBe(
      `NAME   SERVER                         UPDATED    BY
local  in this cluster                -          -
prod   https://kube.example.com:6443  3 min ago  alice
`,
    );
  });

  test('`weir integration status` shows a line for each integration, or the selectors and warnings of the named integration', async () => {
    clockAt('2026-02-01T12:00:00Z');
    const unused = {
      ...status,
      name: 'local',
      state: 'unused',
      since: null,
      last_error: null,
      selectors: [],
      warnings: [],
      stale: false,
    };
    const { url, asked } = await serverThatAnswers(
      { status: 200, body: { items: [local, prod] } },
      { status: 200, body: unused },
      { status: 200, body: status },
      { status: 200, body: status },
    );
    const table = `NAME   STATE              SINCE      OBJECTS  PODS  RESOLVED  LAST ERROR
local  unused             -          fresh    120   0/0       -
prod   refused.forbidden  3 min ago  stale    120   2/3       2 min ago, nodes: 403: nodes is forbidden
`;
    expect(await run(['integration', 'status', '--server', url], ENVIRONMENT)).toEqual({
      code: 0,
      out: table,
      err: '',
    });
    const { out } = await run(['integration', 'status', 'prod', '--server', url], ENVIRONMENT);
    expect(out).toBe(`NAME  STATE              SINCE      OBJECTS  PODS  RESOLVED  LAST ERROR
prod  refused.forbidden  3 min ago  stale    120   2/3       2 min ago, nodes: 403: nodes is forbidden

SELECTOR      ADDRESSES  NETWORKS
resolved      12         0         {"pod_selector":{"namespace":"shop"}}
not resolved  0          0         {"node_selector":{}}
resolved      0          3         {"node_selector":{"addresses":["podCIDRs"]}}
warning: New pods are not deny-only.
`);
    const json = await run(['integration', 'status', 'prod', '--output', 'json', '--server', url], ENVIRONMENT);
    expect(JSON.parse(json.out)).toEqual(status);
    expect(asked.map(({ path }) => path).slice(0, 3)).toEqual([PATH, `${PATH}/local/status`, `${PATH}/prod/status`]);
  });

  test('`weir integration remove` removes an integration, or with --dry-run only prints that it would be removed', async () => {
    const { url, asked } = await serverThatAnswers(
      { status: 204, body: undefined },
      { status: 204, body: undefined },
      ABSENT,
    );
    const words = ['integration', 'remove', 'prod', '--server', url];
    expect((await run([...words, '--dry-run'], ENVIRONMENT)).out).toBe('prod would be removed\n');
    expect((await run(words, ENVIRONMENT)).out).toBe('removed prod\n');
    expect(await run(words, ENVIRONMENT)).toEqual({
      code: 1,
      out: '',
      err: 'weir: there is no integration named prod\n  → `weir integration list` shows the integrations; `weir integration add` stores one\n',
    });
    expect(asked.map(({ method, path }) => `${method} ${path}`).slice(0, 2)).toEqual([
      `DELETE ${PATH}/prod?dry_run=true`,
      `DELETE ${PATH}/prod`,
    ]);
  });
});

describe('weir policy members', () => {
  const member = (address: string) => ({
    ...{ address, integration: 'prod', kind: 'pod', namespace: 'shop', name: `web-${address.at(-1)}` },
  });
  const record = {
    ...{ id: 'p-1', name: 'office', form: 'envelope', mode: 'enforce', revision: 3, active: true },
    ...{ created_at: AT, updated_at: AT, updated_by: 'admin' },
  };

  const network = { cidr: '10.244.7.0/24', integration: 'prod', kind: 'node', namespace: null, name: 'n7' };

  test('`weir policy members` prints the members of a source group from all pages, up to the limit', async () => {
    const pages = [
      { status: 200, body: { items: [{ ...record, id: 'p-0', active: false }, record] } },
      { status: 200, body: { items: [member('10.244.1.1')], networks: [network], total: 3, next: '10.244.1.1' } },
      { status: 200, body: { items: [member('10.244.1.2')], networks: [], total: 3, next: '10.244.1.2' } },
    ] as const;
    const { url, asked } = await serverThatAnswers(...pages);
    expect(await run(['policy', 'members', 'we b', '--limit', '2', '--server', url], ENVIRONMENT)).toEqual({
      code: 0,
      out: `ADDRESS        KIND  NAMESPACE  NAME   INTEGRATION
10.244.7.0/24  node  -          n7     prod
10.244.1.1     pod   shop       web-1  prod
10.244.1.2     pod   shop       web-2  prod
`,
      err: '2 of 3 addresses; --limit shows more\n',
    });
    expect(asked.map(({ path }) => path).slice(1)).toEqual([
      '/api/v1/policies/p-1/source-groups/we%20b/members?limit=2',
      '/api/v1/policies/p-1/source-groups/we%20b/members?limit=1&after=10.244.1.1',
    ]);
  });

  test('`weir policy members` fails if no policy is active', async () => {
    const { url } = await serverThatAnswers({ status: 200, body: { items: [] } });
    expect((await run(['policy', 'members', 'web', '--server', url], ENVIRONMENT)).err).toMatch(
      /^weir: no policy is active/,
    );
  });
});
