import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { parseConfig } from '#config/load.js';

type Labels = Readonly<Record<string, string>>;
type Probe = { readonly httpGet: object };
type DaemonSet = {
  readonly metadata: { readonly namespace: string };
  readonly spec: {
    readonly template: {
      readonly metadata: { readonly labels: Labels };
      readonly spec: {
        readonly hostNetwork: boolean;
        readonly containers: readonly [
          {
            readonly env: readonly { readonly name: string; readonly valueFrom: object }[];
            readonly ports: readonly object[];
            readonly startupProbe: Probe;
            readonly livenessProbe: Probe;
            readonly readinessProbe: Probe;
          },
        ];
      };
    };
  };
};
type Relabelling = {
  readonly source_labels?: readonly string[];
  readonly regex?: string;
  readonly action?: string;
  readonly target_label?: string;
  readonly replacement?: string;
};
type Job = {
  readonly job_name: string;
  readonly scheme?: string;
  readonly static_configs?: readonly { readonly targets: readonly string[] }[];
  readonly kubernetes_sd_configs?: readonly object[];
  readonly relabel_configs?: readonly Relabelling[];
};

const text = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const yaml = (path: string): unknown => parse(text(path));

const base = 'deploy/kubernetes/base';
const set = yaml(`${base}/daemonset.yaml`) as DaemonSet;
const { metadata: pod, spec } = set.spec.template;
const [container] = spec.containers;
const alerts = text('deploy/prometheus/alerts.yaml');
const { scrape_configs: jobs } = yaml('deploy/prometheus/scrape.yaml') as { readonly scrape_configs: readonly Job[] };

/** Returns the setting `metrics.listen` of the Kubernetes manifests, for a node with this address. */
function listenOn(address: string): unknown {
  const environment = { NODE_NAME: 'n1', NODE_IP: address, WEIR_DATAPLANE__INTERFACES: 'cali*' };
  return parseConfig(text(`${base}/weir.yaml`), 'weir.yaml', environment).config.metrics.listen;
}

describe('manifests of Kubernetes', () => {
  test('the Kubernetes manifests serve metrics on the address of the node, at the container port `metrics`', () => {
    expect(listenOn('192.0.2.7')).toEqual({ host: '192.0.2.7', port: 19_649 });
    expect(container.ports).toEqual([{ name: 'metrics', containerPort: 19_649, protocol: 'TCP' }]);
    expect(container.env.find(({ name }) => name === 'NODE_IP')?.valueFrom).toEqual({
      fieldRef: { fieldPath: 'status.hostIP' },
    });
  });

  test('the Kubernetes manifests probe the port `metrics` of the pod, whose address is that of the node', () => {
    expect(spec.hostNetwork).toBe(true);
    const { startupProbe, livenessProbe, readinessProbe } = container;
    expect([startupProbe, livenessProbe, readinessProbe].map(({ httpGet }) => httpGet)).toEqual([
      { port: 'metrics', path: '/health' },
      { port: 'metrics', path: '/health' },
      { port: 'metrics', path: '/ready' },
    ]);
  });

  test('a PodMonitor beside the base manifests selects the pods and their metrics port, with the job name of the alerts', () => {
    const monitor = yaml('deploy/kubernetes/pod-monitor/pod-monitor.yaml') as {
      readonly kind: string;
      readonly metadata: { readonly namespace: string };
      readonly spec: {
        readonly jobLabel: string;
        readonly selector: { readonly matchLabels: Labels };
        readonly podMetricsEndpoints: readonly object[];
      };
    };
    expect(monitor.kind).toBe('PodMonitor');
    expect(monitor.metadata.namespace).toBe(set.metadata.namespace);
    expect(pod.labels).toMatchObject(monitor.spec.selector.matchLabels);
    expect(monitor.spec.podMetricsEndpoints).toMatchObject([{ port: 'metrics', path: '/metrics' }]);
    expect(alerts).toContain(`job="${pod.labels[monitor.spec.jobLabel] ?? ''}"`);
    expect(yaml('deploy/kubernetes/pod-monitor/kustomization.yaml')).toMatchObject({ resources: ['pod-monitor.yaml'] });
    const { resources } = yaml(`${base}/kustomization.yaml`) as { readonly resources: readonly string[] };
    expect(resources.map((name) => text(`${base}/${name}`)).join('\n')).not.toContain('PodMonitor');
  });
});

describe('scrape configuration', () => {
  const [gateways, kubernetes] = jobs;

  test('the scrape configuration scrapes gateways over TLS, at the port in docs/metrics.md, with the job name of the alerts', () => {
    expect(alerts).toContain(`job="${gateways?.job_name}"`);
    expect(gateways?.scheme).toBe('https');
    const targets = gateways?.static_configs?.flatMap((one) => one.targets) ?? [];
    expect(targets.map((target) => target.split(':')[1])).toEqual(['19649', '19649']);
    expect(text('docs/metrics.md')).toContain('listen: 10.0.0.1:19649');
  });

  test('the scrape configuration scrapes the pods of the manifests at their port `metrics`, with the job name of the alerts', () => {
    const [name, value] = Object.entries(pod.labels)[0] ?? [];
    expect(kubernetes?.kubernetes_sd_configs).toEqual([
      {
        role: 'pod',
        namespaces: { names: [set.metadata.namespace] },
        selectors: [{ role: 'pod', label: `${name}=${value}` }],
      },
    ]);
    const relabelled = kubernetes?.relabel_configs ?? [];
    expect(relabelled.find(({ action }) => action === 'keep')).toEqual({
      source_labels: ['__meta_kubernetes_pod_container_port_name'],
      regex: 'metrics',
      action: 'keep',
    });
    const job = relabelled.find(({ target_label }) => target_label === 'job')?.replacement;
    expect(alerts).toContain(`job="${job}"`);
  });
});
