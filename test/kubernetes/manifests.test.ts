import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { parseConfig } from '#config/load.js';
import { readPolicyText } from '#config/policy/policy-text.js';
import { validateEnvelope } from '#policy/check/validation/validate.js';
import { HAS_KUBE_API, HAS_MACHINERY, KUBECTL, KubeApi } from '#test/kubernetes/kube-api.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';

const OVERLAYS = ['calico', 'cilium-chained', 'bridge', 'gateway'] as const;
const REMOVAL = 'remove';
type Overlay = (typeof OVERLAYS)[number] | typeof REMOVAL;
/** The fields of the DaemonSet that kube-apiserver 1.20 does not have. */
const NEWER = /^ +appArmorProfile:\n +type: Unconfined\n/gm;

type EnvironmentVariable = { readonly name: string; readonly value?: string };
/** The variables that Kubernetes sets from fields of the pod. */
const OF_POD: Readonly<Record<string, string>> = { NODE_NAME: 'n1', NODE_IP: '192.0.2.7' };
type Container = {
  readonly env: readonly EnvironmentVariable[];
  readonly securityContext: {
    readonly capabilities: { readonly add: readonly string[]; readonly drop: readonly string[] };
  };
};
type Manifest = {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly data?: Readonly<Record<string, string>>;
  readonly spec?: { readonly template: { readonly spec: { readonly containers: readonly [Container] } } };
};

const repository = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const built = new Map<Overlay, string>();
const manifestsOf = (overlay: Overlay) =>
  parseAllDocuments(built.get(overlay) ?? '').map((document) => document.toJS() as Manifest);
function dataOf(overlay: Overlay, file: string): string {
  const found = manifestsOf(overlay).find(({ kind, data }) => kind === 'ConfigMap' && data?.[file] !== undefined);
  return found?.data?.[file] ?? '';
}
function containerOf(overlay: Overlay): Container {
  const set = manifestsOf(overlay).find(({ kind }) => kind === 'DaemonSet');
  if (set?.spec === undefined) throw new Error(`${overlay} has no DaemonSet`);
  return set.spec.template.spec.containers[0];
}

/** The collection of each kind of object in the manifests. */
const COLLECTIONS: Readonly<Record<string, string>> = {
  Namespace: '/api/v1/namespaces',
  ServiceAccount: '/api/v1/namespaces/weir-system/serviceaccounts',
  ConfigMap: '/api/v1/namespaces/weir-system/configmaps',
  DaemonSet: '/apis/apps/v1/namespaces/weir-system/daemonsets',
  ClusterRole: '/apis/rbac.authorization.k8s.io/v1/clusterroles',
  ClusterRoleBinding: '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings',
};

async function buildOverlays(): Promise<void> {
  for (const overlay of [...OVERLAYS, REMOVAL] as const) {
    const folder = repository(`deploy/kubernetes/${overlay === REMOVAL ? REMOVAL : `overlays/${overlay}`}`);
    built.set(overlay, (await promisify(execFile)(KUBECTL, ['kustomize', folder])).stdout);
  }
}

skipUnless(HAS_MACHINERY, LACKS.apiMachinery).describe(
  "manifests of Kubernetes and the fields that today's Kubernetes has",
  () => {
    let kube: KubeApi;
    beforeAll(async () => {
      await buildOverlays();
      kube = await KubeApi.start('api-machinery');
    });
    afterAll(() => kube.remove());

    /** Sends an object with strict field validation, and stores nothing. Returns the message of a refusal. */
    async function refusalOf(kind: string, text: string): Promise<string | null> {
      const path = `${COLLECTIONS[kind]}?fieldValidation=Strict&dryRun=All`;
      const { status, body } = await kube.send('POST', path, JSON.parse(text) as Readonly<Record<string, unknown>>);
      return status === 201 ? null : (body.message ?? String(status));
    }

    it('the manifests are compared with Kubernetes 1.36 or later', async () => {
      const { major, minor } = (await kube.send('GET', '/version')).body as { readonly major: string; minor: string };
      expect([major, Number.parseInt(minor, 10) >= 36]).toEqual(['1', true]);
    });

    it.each([...OVERLAYS, REMOVAL] as const)(
      'the manifests of the variant %s have only fields that the Kubernetes server knows',
      async (overlay) => {
        const refusals = manifestsOf(overlay).map(async (manifest) => [
          manifest.kind,
          await refusalOf(manifest.kind, JSON.stringify(manifest)),
        ]);
        expect(await Promise.all(refusals)).toEqual(manifestsOf(overlay).map(({ kind }) => [kind, null]));
      },
    );

    it.each([
      ['"maxUnavailable":', '"maxUnavailabel":', 'unknown field "spec.updateStrategy.rollingUpdate.maxUnavailabel"'],
      [
        '"appArmorProfile":',
        '"appArmourProfile":',
        'unknown field "spec.template.spec.containers[0].securityContext.appArmourProfile"',
      ],
      ['"failureThreshold":60', '"failureThreshold":"60"', 'into Go struct field'],
    ])(
      'the Kubernetes server of this test refuses a manifest in which the field or value %s is replaced by the wrong text %s',
      async (field, wrong, message) => {
        const set = JSON.stringify(manifestsOf('calico').find(({ kind }) => kind === 'DaemonSet'));
        expect(set).toContain(field);
        expect(await refusalOf('DaemonSet', set.replace(field, wrong))).toContain(message);
      },
    );
  },
);

skipUnless(HAS_KUBE_API, LACKS.kubeApi).describe('manifests of Kubernetes', { timeout: 60_000 }, () => {
  let kube: KubeApi;
  beforeAll(async () => {
    await buildOverlays();
    kube = await KubeApi.start();
  });
  afterAll(() => kube.remove());

  /** Runs kubectl as the service account of the manifests. Returns `yes` or `no`. */
  async function canI(verb: string, words: string): Promise<string> {
    const as = '--as=system:serviceaccount:weir-system:weir';
    return kube.kubectl('auth', 'can-i', verb, ...words.split(' '), '--all-namespaces', as).then(
      (out) => out.trim(),
      ({ stdout }: { readonly stdout: string }) => stdout.trim(),
    );
  }

  it.each([
    ['calico', ['cali*'], 'n1', [{ address: 0xc0a8_0000, length: 16 }]],
    ['cilium-chained', ['lxc*'], 'n1', [{ address: 0x0a00_0000, length: 8 }]],
    ['bridge', ['cni0*'], 'n1', undefined],
    ['gateway', ['lan0', 'wan0'], null, undefined],
  ] as const)(
    'the manifests of the variant %s have a valid configuration with the expected interfaces, scope and pod networks',
    (overlay, interfaces, node, pods) => {
      const { env } = containerOf(overlay);
      const environment = Object.fromEntries(env.map(({ name, value = OF_POD[name] }) => [name, value]));
      const { config } = parseConfig(dataOf(overlay, 'weir.yaml'), 'weir.yaml', environment);
      expect([config.node.id, config.dataplane?.interfaces]).toEqual(['n1', interfaces]);
      expect(config.kubernetes).toEqual({ node, nodeName: 'n1', ipv6: false, podNetworks: pods, inCluster: 'local' });
      expect(config.metrics.listen).toEqual({ host: '192.0.2.7', port: 19_649 });
      expect(config.policy.file).toBe('/etc/weir/policy/policy.yaml');
    },
  );

  it.each(OVERLAYS)(
    'the manifests of the variant %s have a policy in audit mode that names the integration of the cluster',
    (overlay) => {
      const { value } = readPolicyText(dataOf(overlay, 'policy.yaml'));
      expect(value.mode).toBe('audit');
      const problemsOf = (integrations: readonly string[]) =>
        validateEnvelope(value, {
          form: 'envelope',
          integrations: new Set(integrations),
          parseCertificate: () => undefined,
        });
      expect(problemsOf(['local'])).toEqual([]);
      const [problem] = problemsOf([]);
      expect(problem?.code).toBe('unknown_integration');
    },
  );

  it.each(OVERLAYS)('the manifests of the variant %s give the same capabilities as the systemd unit', (overlay) => {
    const { securityContext } = containerOf(overlay);
    const unit = readFileSync(repository('deploy/systemd/weir.service'), 'utf8');
    const ofUnit = /^AmbientCapabilities=(.*)$/m.exec(unit)?.[1]?.split(' ') ?? [];
    expect(securityContext.capabilities).toEqual({
      drop: ['ALL'],
      add: ofUnit.map((name) => name.replace('CAP_', '')),
    });
  });

  it.each(OVERLAYS)(
    'the manifests of the variant %s are accepted by a real API server, and a second time without a change',
    async (overlay) => {
      expect(built.get(overlay)).toMatch(NEWER);
      const daemonSet = async () =>
        JSON.parse(await kube.kubectl('get', 'daemonset', 'weir', '-n', 'weir-system', '-o', 'json'));
      await apply(overlay);
      const { generation } = (await daemonSet()).metadata;
      await apply(overlay);
      const set = await daemonSet();
      expect(set.metadata.generation).toBe(generation);
      expect(set.spec.template.spec).toMatchObject({
        hostNetwork: true,
        dnsPolicy: 'Default',
        priorityClassName: 'system-node-critical',
        automountServiceAccountToken: false,
      });
    },
  );

  it('the manifests give the service account get, list and watch on pods, nodes and namespaces, and no other permission', async () => {
    await apply('calico');
    for (const resource of ['pods', 'nodes', 'namespaces'])
      for (const verb of ['get', 'list', 'watch'])
        expect([verb, resource, await canI(verb, resource)]).toEqual([verb, resource, 'yes']);
    for (const [verb, resource] of [
      ['list', 'secrets'],
      ['list', 'configmaps'],
      ['create', 'pods'],
      ['delete', 'pods'],
      ['patch', 'nodes'],
      ['get', 'pods --subresource=log'],
      ['create', 'serviceaccounts --subresource=token'],
    ] as const)
      expect([verb, resource, await canI(verb, resource)]).toEqual([verb, resource, 'no']);
  });

  it('a token of the service account in the manifests may list and watch the pods of a node', async () => {
    await apply('calico');
    const request = await kube.must('POST', '/api/v1/namespaces/weir-system/serviceaccounts/weir/token', {
      spec: { expirationSeconds: 3_600 },
    });
    const { token } = request.status as { readonly token: string };
    const query = 'fieldSelector=spec.nodeName%3Dn1&limit=1';
    const status = async (path: string) => (await kube.send('GET', path, undefined, token)).status;
    expect(await status(`/api/v1/pods?${query}`)).toBe(200);
    expect(await status(`/api/v1/pods?${query}&watch=true&timeoutSeconds=1`)).toBe(200);
    expect(await status('/api/v1/namespaces/weir-system/secrets')).toBe(403);
  });

  async function apply(overlay: Overlay): Promise<string> {
    const file = join(kube.folder, `${overlay}.yaml`);
    writeFileSync(file, (built.get(overlay) ?? '').replaceAll(NEWER, ''));
    return kube.kubectl('apply', '-f', file);
  }
});
