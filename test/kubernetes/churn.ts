import type { KubeApi } from '#test/kubernetes/kube-api.js';
import type { Random } from '#test/seed.js';

type Labels = Readonly<Record<string, string | null>>;
type Place = { readonly namespace: string; readonly name: string };
/** `address`: null if the pod claims none, or only an address of its node. */
type KnownPod = Place & {
  address: string | null;
  state: 'alive' | 'deleting' | 'ended';
  readonly isOnHost: boolean;
};

const [NETWORKS, ADDRESSES_EACH] = [3, 10];
/** The addresses of pods: those of the first network are of node n1, and so on. */
export const POD_ADDRESSES: readonly string[] = Array.from({ length: NETWORKS * ADDRESSES_EACH }, (_, index) =>
  podAddress(1 + Math.floor(index / ADDRESSES_EACH), 1 + (index % ADDRESSES_EACH)),
);
export const NODE_ADDRESSES: readonly string[] = Array.from({ length: 6 }, (_, index) => `10.245.0.${1 + index}`);
/** The node that is removed and added at times. The other nodes stay, so their pod networks remain known. */
const GUEST = 'n3';
const NAMES_EACH = 8;
/** A namespace that no event changes: with another label, its pods could belong to other source groups. */
const FIXED = 'fixed';
const NAMESPACES = ['default', 'shop', 'guest'];

export function podAddress(node: number, host: number): string {
  return `10.244.${node}.${host}`;
}

/**
 * Random changes of pods, namespaces and nodes of a real API server. At rest, each address has one owner at
 * most: a pod that gets the address of another pod ends that pod with the next request.
 */
export class Churn {
  readonly #kube: KubeApi;
  readonly #random: Random;
  readonly #pods = new Map<string, KnownPod>();
  readonly #nodes = new Set<string>();
  readonly #namespaces = new Set<string>();
  #started = 0;
  events = 0;

  constructor(kube: KubeApi, random: Random) {
    this.#kube = kube;
    this.#random = random;
  }

  async begin(): Promise<void> {
    this.#namespaces.add('default');
    for (const name of ['shop', 'guest']) await this.#addNamespace(name);
    await this.#kube.createNamespace(FIXED);
    for (const number of [1, 2, 3]) await this.#addNode(`n${number}`);
  }

  /** Creates a pod with an address that no event touches. */
  async addFixedPod(name: string, labels: Labels, address: string): Promise<void> {
    await this.#create({ namespace: FIXED, name }, labels, { nodeName: 'n1' });
    await this.#setAddress({ namespace: FIXED, name }, address);
  }

  async event(): Promise<void> {
    this.events++;
    const kind = this.#random.below(20);
    if (kind === 0) await this.#changeNode();
    else if (kind === 1) await this.#changeNamespace();
    else await this.#changePod();
  }

  async #changePod(): Promise<void> {
    const place = {
      namespace: this.#random.pick([...this.#namespaces]),
      name: `p${this.#random.below(NAMES_EACH)}`,
    };
    const pod = this.#pods.get(keyOf(place));
    if (pod === undefined) return this.#addPod(place);
    if (pod.state === 'ended') return this.#removePod(pod);
    if (pod.state === 'deleting') return this.#random.chance(0.5) ? this.#removePod(pod) : this.#endContainers(pod);
    switch (this.#random.below(8)) {
      case 0:
      case 1:
      case 2:
        return this.#label(pod);
      case 3:
        return this.#giveAddress(pod);
      case 4:
        return this.#takeAddress(pod);
      case 5:
        return this.#complete(pod);
      case 6:
        return this.#delete(pod);
      default:
        return this.#removePod(pod);
    }
  }

  async #addPod(place: Place): Promise<void> {
    const isOnHost = this.#random.chance(0.1);
    await this.#create(place, this.#labels(), {
      nodeName: `n${this.#random.between(1, NETWORKS)}`,
      hostNetwork: isOnHost,
      serviceAccountName: this.#random.pick(['default', 'builder']),
    });
    const pod: KnownPod = { ...place, address: null, state: 'alive', isOnHost };
    this.#pods.set(keyOf(place), pod);
    // Otherwise the pod stays pending for a while.
    if (this.#random.chance(0.8)) await this.#giveAddress(pod);
  }

  async #create(place: Place, labels: Labels, spec: Readonly<Record<string, unknown>>): Promise<void> {
    await this.#kube.must('POST', `/api/v1/namespaces/${place.namespace}/pods`, {
      metadata: {
        name: place.name,
        labels: Object.fromEntries(Object.entries(labels).filter(([, value]) => value !== null)),
      },
      spec: { automountServiceAccountToken: false, containers: [{ name: 'c', image: 'none' }], ...spec },
    });
  }

  #labels(): Labels {
    const one = (...values: readonly (string | null)[]) => this.#random.pick(values);
    return {
      app: one('web', 'web', 'db', 'cache', 'other', null),
      tier: one('front', 'back', null),
      canary: one('yes', null, null),
      quarantine: one('true', null, null, null),
    };
  }

  async #label(pod: Place): Promise<void> {
    await this.#kube.must('PATCH', pathOf(pod), { metadata: { labels: this.#labels() } });
  }

  /** Gives a pod an address that no other pod has. */
  async #giveAddress(pod: KnownPod): Promise<void> {
    // A pod on the network of its node has the address of the node.
    if (pod.isOnHost) return this.#setAddress(pod, this.#random.pick(NODE_ADDRESSES));
    const used = new Set([...this.#pods.values()].map(({ address }) => address));
    const free = POD_ADDRESSES.filter((address) => !used.has(address));
    if (free.length > 0) await this.#claim(pod, this.#random.pick(free));
  }

  /** Gives a pod the address of another pod, and then completes or removes the other pod. */
  async #takeAddress(pod: KnownPod): Promise<void> {
    const others = [...this.#pods.values()].filter((other) => other !== pod && other.address !== null);
    const other = others.length === 0 ? undefined : this.#random.pick(others);
    if (other === undefined || other.address === null || pod.isOnHost) return;
    await this.#claim(pod, other.address);
    if (other.state === 'alive' && this.#random.chance(0.5)) await this.#complete(other);
    else await this.#removePod(other);
  }

  async #claim(pod: KnownPod, address: string): Promise<void> {
    pod.address = address;
    await this.#setAddress(pod, address);
  }

  async #setAddress(pod: Place, ip: string): Promise<void> {
    const startTime = new Date(Date.UTC(2026, 0, 1) + 1_000 * ++this.#started).toISOString().replace('.000', '');
    const containerStatuses = [containerStatus({ running: { startedAt: startTime } })];
    await this.#kube.setStatus(
      pod.name,
      { phase: 'Running', podIP: ip, podIPs: [{ ip }], startTime, containerStatuses },
      pod.namespace,
    );
  }

  async #complete(pod: KnownPod): Promise<void> {
    pod.address = null;
    pod.state = 'ended';
    await this.#kube.setStatus(pod.name, { phase: this.#random.pick(['Succeeded', 'Failed']) }, pod.namespace);
  }

  /** A pod on a node gets a deletion time only, and has its address while a container runs. */
  async #delete(pod: KnownPod): Promise<void> {
    pod.state = 'deleting';
    await this.#kube.must('DELETE', pathOf(pod), { gracePeriodSeconds: 30 });
  }

  async #endContainers(pod: KnownPod): Promise<void> {
    pod.address = null;
    pod.state = 'ended';
    const state = { terminated: { exitCode: 0 } };
    await this.#kube.setStatus(pod.name, { containerStatuses: [containerStatus(state)] }, pod.namespace);
  }

  async #removePod(pod: Place): Promise<void> {
    this.#pods.delete(keyOf(pod));
    await this.#kube.must('DELETE', pathOf(pod), { gracePeriodSeconds: 0 });
  }

  async #changeNamespace(): Promise<void> {
    const name = this.#random.pick(NAMESPACES);
    if (!this.#namespaces.has(name)) await this.#addNamespace(name);
    else if (name === 'guest' && this.#random.chance(0.4)) {
      for (const pod of [...this.#pods.values()]) if (pod.namespace === name) await this.#removePod(pod);
      this.#namespaces.delete(name);
      await this.#kube.must('DELETE', `/api/v1/namespaces/${name}`);
      // A namespace of `api-machinery` has no finalizer, so its deletion ends without a further request.
      if (this.#kube.server === 'api-machinery') return;
      // Remove the finalizer of the namespace: no controller runs that would remove it.
      await this.#kube.must('PUT', `/api/v1/namespaces/${name}/finalize`, {
        metadata: { name },
        spec: { finalizers: [] },
      });
    } else await this.#kube.must('PATCH', `/api/v1/namespaces/${name}`, { metadata: { labels: this.#teamLabels() } });
  }

  async #addNamespace(name: string): Promise<void> {
    this.#namespaces.add(name);
    await this.#kube.must('POST', '/api/v1/namespaces', { metadata: { name, labels: this.#teamLabels() } });
  }

  #teamLabels(): Labels {
    return { team: this.#random.pick(['a', 'b', null]) };
  }

  async #changeNode(): Promise<void> {
    const name = this.#random.pick(['n1', 'n2', GUEST]);
    if (!this.#nodes.has(name)) await this.#addNode(name);
    else if (name === GUEST && this.#random.chance(0.4)) {
      this.#nodes.delete(name);
      await this.#kube.must('DELETE', `/api/v1/nodes/${name}`);
    } else if (this.#random.chance(0.5))
      await this.#kube.must('PATCH', `/api/v1/nodes/${name}`, { metadata: { labels: this.#roleLabels() } });
    else await this.#setNodeAddress(name);
  }

  async #addNode(name: string): Promise<void> {
    this.#nodes.add(name);
    await this.#kube.must('POST', '/api/v1/nodes', {
      metadata: { name, labels: this.#roleLabels() },
      spec: { podCIDRs: [`10.244.${name.slice(1)}.0/24`] },
    });
    await this.#setNodeAddress(name);
  }

  #roleLabels(): Labels {
    return { role: this.#random.pick(['edge', 'core']) };
  }

  /** Each node has two addresses of its own. */
  async #setNodeAddress(name: string): Promise<void> {
    const address = NODE_ADDRESSES[2 * (Number(name.slice(1)) - 1) + this.#random.below(2)];
    await this.#kube.must('PATCH', `/api/v1/nodes/${name}/status`, {
      status: { addresses: [{ type: 'InternalIP', address }] },
    });
  }
}

const keyOf = ({ namespace, name }: Place): string => `${namespace}/${name}`;
const pathOf = ({ namespace, name }: Place): string => `/api/v1/namespaces/${namespace}/pods/${name}`;

function containerStatus(state: object): object {
  return { name: 'c', image: 'none', imageID: 'none', ready: false, restartCount: 0, state };
}
