import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { eventually } from '#test/eventually.js';
import { HAS_KUBE_API, KUBECTL, KubeApi } from '#test/kubernetes/kube-api.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { freePort } from '#test/sockets/free-port.js';

const repository = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const NODE = 'n1';
/** Puts the files of a service account where Kubernetes mounts them, in a mount namespace of its own. */
const AS_IN_A_POD = `mount -t tmpfs none /var/run && mkdir -p /var/run/secrets/kubernetes.io
cp -r "$0" /var/run/secrets/kubernetes.io/serviceaccount && exec "$@"`;

type Manifest = {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly data?: Readonly<Record<string, string>>;
};

skipUnless(HAS_KUBE_API, LACKS.kubeApi).describe(
  'a node with the configuration of the manifests',
  { timeout: 60_000 },
  () => {
    let kube: KubeApi;
    let node: ChildProcess | undefined;
    let log = '';
    let origin: string;

    beforeAll(async () => {
      kube = await KubeApi.start();
      const built = execFileSync(KUBECTL, ['kustomize', repository('deploy/kubernetes/overlays/bridge')], {
        encoding: 'utf8',
      });
      const manifests = parseAllDocuments(built).map((document) => document.toJS() as Manifest);
      for (const manifest of manifests.filter(({ kind }) => kind !== 'DaemonSet')) {
        const file = join(kube.folder, 'manifest.json');
        writeFileSync(file, JSON.stringify(manifest));
        await kube.kubectl('apply', '-f', file);
      }
      const dataOf = (name: string) => manifests.find(({ data }) => data?.[name] !== undefined)?.data?.[name] ?? '';
      const port = await freePort();
      origin = `http://127.0.0.1:${port}`;
      const policy = join(kube.folder, 'policy.yaml');
      writeFileSync(policy, dataOf('policy.yaml'));
      // Leave the dataplane out: another test checks the selectors with a datapath.
      const { dataplane: _, ...config } = parse(dataOf('weir.yaml')) as Record<string, object>;
      const file = join(kube.folder, 'weir.yaml');
      writeFileSync(
        file,
        stringify({
          ...config,
          node: { ...config.node, data_dir: join(kube.folder, 'data') },
          api: { listen: `127.0.0.1:${port}` },
          policy: { ...config.policy, file: policy },
        }),
      );
      const account = join(kube.folder, 'serviceaccount');
      mkdirSync(account);
      const request = { spec: { expirationSeconds: 3_600 } };
      const path = '/api/v1/namespaces/weir-system/serviceaccounts/weir/token';
      const { status } = await kube.must('POST', path, request);
      writeFileSync(join(account, 'token'), (status as { readonly token: string }).token);
      writeFileSync(join(account, 'ca.crt'), kube.certificate.ca);
      const weir = [process.execPath, repository('bin/weir.js'), 'run', '--config', file];
      node = spawn('unshare', ['--mount', 'sh', '-c', AS_IN_A_POD, account, ...weir], {
        env: {
          PATH: process.env.PATH,
          NODE_NAME: NODE,
          NODE_IP: '127.0.0.1',
          KUBERNETES_SERVICE_HOST: '127.0.0.1',
          KUBERNETES_SERVICE_PORT: new URL(kube.url).port,
        },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      for (const stream of [node.stdout, node.stderr])
        stream?.on('data', (text: Buffer) => {
          log += text.toString();
        });
      await eventually(() => expect(log).toContain('the API listens'));
    });
    afterAll(async () => {
      const ended = node === undefined || node.exitCode !== null ? null : once(node, 'exit');
      node?.kill('SIGTERM');
      await ended;
      await kube?.remove();
    });

    const get = async (path: string): Promise<Record<string, unknown>> => {
      const token = readFileSync(join(kube.folder, 'data/admin.token'), 'utf8').trim();
      const response = await fetch(origin + path, { headers: { authorization: `Bearer ${token}` } });
      return (await response.json()) as Record<string, unknown>;
    };

    it('a node in a DaemonSet watches the pods of its own Kubernetes node with the service account, and shows them as members', async () => {
      const labels = { quarantine: 'true' };
      for (const [name, of, ip] of [
        ['own', NODE, '10.244.1.7'],
        ['other', 'n2', '10.244.2.7'],
      ] as const) {
        await kube.createPod(name, { node: of, labels });
        await kube.setStatus(name, { phase: 'Running', podIP: ip, podIPs: [{ ip }] });
      }
      await expect
        .poll(() => get('/api/v1/integrations/local/status'), { timeout: 20_000 })
        .toMatchObject({ state: 'watching', last_error: null, stale: false, objects: { pods: 1 } });
      expect(await get('/api/v1/integrations')).toEqual({
        items: [{ name: 'local', kind: 'kubernetes', in_cluster: true }],
      });
      const activePolicy = async () => {
        const { items } = (await get('/api/v1/policies')) as { items: { id: string; active: boolean }[] };
        return items.find((item) => item.active)?.id;
      };
      await expect.poll(activePolicy).toBeDefined();
      const active = await activePolicy();
      const owner = { integration: 'local', kind: 'pod', namespace: 'default', name: 'own' };
      expect(await get(`/api/v1/policies/${active}/source-groups/quarantine/members`)).toEqual({
        items: [{ address: '10.244.1.7', ...owner }],
        networks: [],
        total: 1,
        next: null,
      });
    });
  },
);
