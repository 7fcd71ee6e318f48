import type { LabelSelectorConfig, NodeAddress } from '#contracts/policy/policy-document.js';
import type { Selector } from '#contracts/policy/policy-model.js';
import type { KubernetesObject, ObjectMessage } from '#kubernetes/watch/objects.js';
import type { WatchScope } from '#kubernetes/watch/watch-scopes.js';
import type { Random } from '#test/seed.js';
import { ip, namespace, node, nodeSelector, pod, podSelector, scope } from './sample.js';

const NAMESPACES = ['shop', 'bank', 'play'];
const ADDRESSES = Array.from({ length: 8 }, (_, index) => ip(`10.0.0.${index + 1}`));
export const SCOPES: readonly WatchScope[] = [
  scope('pods'),
  scope('pods', 'shop'),
  scope('pods', 'bank'),
  scope('nodes'),
  scope('namespaces'),
];

/**
 * A cluster with few addresses and few objects, so that claims often collide. Each scope has a queue of the
 * messages that its watch has not delivered yet.
 */
export class RandomCluster {
  readonly #random: Random;
  readonly #objects = new Map<string, KubernetesObject>();
  readonly #queues = new Map<WatchScope, ObjectMessage[]>();
  #version = 100;
  #uids = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  get objects(): readonly KubernetesObject[] {
    return [...this.#objects.values()];
  }

  /** Adds, changes or deletes an object. */
  change(): void {
    const random = this.#random;
    const old = this.#objects.size > 0 && random.chance(0.7) ? random.pick(this.objects) : undefined;
    if (old !== undefined && random.chance(0.25)) this.#delete(old);
    else this.#put(old === undefined ? this.#newObject() : this.#changed(old));
  }

  /** The watch of a scope ends: what it has not delivered is lost until the next list. */
  cut(of: WatchScope): void {
    this.#queues.delete(of);
  }

  list(of: WatchScope): ObjectMessage {
    this.#queues.set(of, []);
    const objects = this.objects.filter((object) => isOf(of, object));
    return { type: 'listed', objects, version: ++this.#version };
  }

  deliver(of: WatchScope): ObjectMessage | undefined {
    return this.#queues.get(of)?.shift();
  }

  /** Lists a scope that is not watched, and 1 of 20 watched scopes. Otherwise delivers the next change. */
  next(of: WatchScope): ObjectMessage | undefined {
    const isNew = !this.#queues.has(of) || this.#random.chance(0.05);
    return isNew ? this.list(of) : this.deliver(of);
  }

  /** Restores the objects from a backup: all versions are lower than before, and no watch goes on. */
  restore(): void {
    this.#queues.clear();
    this.#version = Math.floor(this.#version / 2);
    for (const object of this.objects) {
      this.#objects.set(object.uid, { ...object, version: Math.floor(object.version / 2) });
    }
  }

  #put(object: KubernetesObject): void {
    this.#objects.set(object.uid, object);
    this.#tell(object, { type: 'changed', object });
  }

  #delete(object: KubernetesObject): void {
    this.#objects.delete(object.uid);
    this.#tell(object, { type: 'deleted', uid: object.uid, version: ++this.#version });
  }

  #tell(object: KubernetesObject, message: ObjectMessage): void {
    for (const [of, queue] of this.#queues) if (isOf(of, object)) queue.push(message);
  }

  #newObject(): KubernetesObject {
    const random = this.#random;
    const name = `object-${++this.#uids}`;
    const undecided = random.chance(0.05) ? ({ undecided: true } as const) : {};
    const base = { version: ++this.#version, labels: this.#labels(), started: random.below(4), ...undecided };
    const kind = random.below(10);
    if (kind === 0) {
      const known = new Set(this.objects.map((object) => object.name));
      const missing = NAMESPACES.filter((of) => !known.has(of));
      if (missing.length > 0) return { ...namespace(random.pick(missing), base.labels, base.version), uid: name };
    }
    if (kind <= 2) {
      const addresses = { internal: random.some(0, 2, () => random.pick(ADDRESSES)), external: this.#address() };
      const networks = [{ address: ip(`10.${random.below(3)}.0.0`), length: 16 + random.below(2) }];
      return node(name, { ...base, ...addresses, podNetworks: random.chance(0.7) ? networks : [] });
    }
    const account = { namespace: random.pick(NAMESPACES), serviceAccount: random.pick(['default', 'robot']) };
    return pod(name, { ...base, ...account, addresses: this.#address(), hostNetwork: random.chance(0.1) });
  }

  #changed(old: KubernetesObject): KubernetesObject {
    const random = this.#random;
    const version = ++this.#version;
    const { labels } = random.chance(0.4) ? pod('labels', { labels: this.#labels() }) : old;
    if (old.resource === 'namespaces') return { ...old, version, labels };
    if (old.resource === 'nodes') return { ...old, version, labels, internal: this.#address() };
    return {
      ...old,
      version,
      labels,
      addresses: random.chance(0.3) ? this.#address() : old.addresses,
      phase: random.chance(0.1) ? random.pick(['Pending', 'Running', 'Succeeded', 'Failed']) : old.phase,
      deleting: old.deleting || random.chance(0.15),
      running: random.chance(0.8),
    };
  }

  #address(): readonly number[] {
    return [...new Set(this.#random.some(0, 2, () => this.#random.pick(ADDRESSES)))];
  }

  #labels(): Readonly<Record<string, string>> {
    const random = this.#random;
    const entries = random.some(0, 3, () => [random.pick(['app', 'tier', 'team']), random.pick(['a', 'b', ''])]);
    return Object.fromEntries(entries) as Record<string, string>;
  }
}

/** Returns a random cluster and scope for a step of a test. `choice` is a random number from 0 to 99. */
export function randomStep(random: Random, clusters: ReadonlyMap<string, RandomCluster>, names: readonly string[]) {
  const name = random.pick(names);
  const cluster = clusters.get(name);
  if (cluster === undefined) throw new Error(`there is no cluster ${name}`);
  return { name, cluster, of: random.pick(SCOPES), choice: random.below(100) };
}

function isOf(of: WatchScope, object: KubernetesObject): boolean {
  if (of.resource !== object.resource) return false;
  return object.resource !== 'pods' || of.namespace === null || of.namespace === object.namespace;
}

export function randomSelector(random: Random, integration: string): Selector {
  const labels = (): LabelSelectorConfig => ({
    match_labels: random.chance(0.5) ? { [random.pick(['app', 'tier'])]: random.pick(['a', 'b']) } : undefined,
    match_expressions: random.some(0, 2, () => {
      const operator = random.pick(['In', 'NotIn', 'Exists', 'DoesNotExist'] as const);
      const values =
        operator === 'In' || operator === 'NotIn' ? random.some(1, 2, () => random.pick(['a', 'b', ''])) : [];
      return { key: random.pick(['app', 'tier', 'team']), operator, values };
    }),
  });
  if (random.chance(0.25)) {
    const all: readonly NodeAddress[] = ['InternalIP', 'ExternalIP', 'podCIDRs'];
    return nodeSelector(
      { ...labels(), addresses: random.chance(0.5) ? undefined : random.some(1, 2, () => random.pick(all)) },
      integration,
    );
  }
  const fields = {
    namespace: random.chance(0.3) ? random.pick(NAMESPACES) : undefined,
    namespace_selector: random.chance(0.2) ? labels() : undefined,
    service_account: random.chance(0.2) ? random.pick(['default', 'robot']) : undefined,
  };
  return podSelector({ ...labels(), ...fields }, integration);
}
