import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stringify } from 'yaml';
import type { KubeApi } from '#test/kubernetes/kube-api.js';

const MANIFESTS = fileURLToPath(new URL('../../deploy/kubernetes', import.meta.url));
const selecting = (app: string) => ({
  kubernetes: [{ integration: 'local', pod_selector: { match_labels: { app } } }],
});

/** Pods with this label reach the server; all other packets of pods are denied. */
const policyFor = (app: string) => ({
  mode: 'enforce',
  name: 'pods',
  policy: {
    default_policy: 'deny',
    source_groups: [
      {
        id: 'clients',
        sources: selecting(app),
        rules: ['udp', 'tcp'].map((proto) => ({ id: proto, action: 'allow', match: { proto, dst_ips: ['10.9.0.2'] } })),
        default_action: 'deny',
      },
    ],
  },
});

/** A copy of the manifests, edited as docs/kubernetes.md says for an installation. */
export class Installation {
  readonly #folder: string;

  constructor(
    readonly kube: KubeApi,
    readonly overlay: string,
    tag: string,
  ) {
    this.#folder = join(kube.folder, 'manifests');
    cpSync(MANIFESTS, this.#folder, { recursive: true });
    const { port } = new URL(kube.url);
    this.#edit('base/weir.yaml', 'fallback: allow', 'fallback: deny');
    // kube-apiserver 1.20 does not have this field.
    for (const file of ['base/daemonset.yaml', 'remove/daemonset.yaml'])
      this.#edit(file, /^ +appArmorProfile:\n +type: Unconfined\n/m, '');
    this.#edit('remove/kustomization.yaml', 'newTag: latest', `newTag: ${tag}`);
    this.#edit(
      `overlays/${overlay}/network.yaml`,
      /( +)env:\n/,
      `$&$1  - { name: KUBERNETES_SERVICE_HOST, value: 127.0.0.1 }\n$1  - { name: KUBERNETES_SERVICE_PORT, value: "${port}" }\n`,
    );
    this.setImage('latest', tag);
    this.allow('client');
  }

  setImage(old: string, tag: string): void {
    this.#edit(`overlays/${this.overlay}/kustomization.yaml`, `newTag: ${old}`, `newTag: ${tag}`);
  }

  /** Writes the policy. Pods with the label `app` of this value reach the server. */
  allow(app: string): void {
    const text = stringify(policyFor(app)).replaceAll(/^/gm, '    ');
    this.#edit('base/policy.yaml', /(policy\.yaml: \|\n)[\s\S]*/, `$1${text}`);
  }

  apply(): Promise<string> {
    return this.kube.kubectl('apply', '-k', this.#path(`overlays/${this.overlay}`));
  }

  remove(): Promise<string> {
    return this.kube.kubectl('delete', '-k', this.#path(`overlays/${this.overlay}`));
  }

  applyRemoval(): Promise<string> {
    return this.kube.kubectl('apply', '-k', this.#path('remove'));
  }

  deleteRemoval(): Promise<string> {
    return this.kube.kubectl('delete', '-k', this.#path('remove'));
  }

  #path(name: string): string {
    return join(this.#folder, name);
  }

  #edit(name: string, from: string | RegExp, to: string): void {
    const text = readFileSync(this.#path(name), 'utf8');
    const edited = text.replace(from, to);
    if (edited === text) throw new Error(`${name} lacks ${String(from)}`);
    writeFileSync(this.#path(name), edited);
  }
}
