import { parseAddress, parseCidr } from '#addresses/ip-address.js';
import { itemAt } from '#arrays/read.js';
import type { Address, Prefix } from '#contracts/policy/policy-model.js';
import { parseVersion } from '#kubernetes/api-server/api-objects.js';
import type { KubernetesObject, Labels, NamespaceRecord, NodeRecord, PodRecord, ResourceName } from './objects.js';

/**
 * Limits for the data of one object. Selectors are not evaluated for an object that exceeds a limit (it is
 * undecided).
 */
const MAX_NAME = 253;
const MAX_ADDRESSES = 16;
const MAX_LABEL_CHARACTERS = 32_768;
/** The number of entries of each cache, through which records share equal label lists and equal strings. */
const LABEL_CACHE = 4096;
const STRING_CACHE = 4096;

const NO_LABELS: Labels = [];
const NONE: readonly never[] = [];

/**
 * Reads objects of the Kubernetes API. It keeps only the data that selectors use: a few hundred bytes of a
 * pod of 7 kB.
 */
export class ObjectReader {
  /** The number of times that an object had the wrong shape or exceeded a limit. */
  damaged = 0;
  readonly #labels = new Array<Labels | undefined>(LABEL_CACHE);
  readonly #strings = new Map<string, string>();

  /** `readsIpv6`: whether records contain IPv6 addresses and networks. If false, they are left out. */
  constructor(private readonly readsIpv6 = false) {}

  /**
   * Returns the record of an object. A damaged pod or node keeps its readable addresses, and no selector is
   * evaluated for it (it is undecided). Without a record, the address would have no owner, and no deny rule
   * by a selector would match. Returns undefined if the object has no identity. Never throws.
   */
  read(resource: ResourceName, value: unknown): KubernetesObject | undefined {
    try {
      if (resource === 'pods') return this.#pod(value);
      return resource === 'nodes' ? this.#node(value) : this.#namespace(value);
    } catch (failure) {
      if (!(failure instanceof Damaged)) throw failure;
      this.damaged++;
      return resource === 'namespaces'
        ? undefined
        : lenient(() => this.#undecided(resource, objectOf(value)), undefined);
    }
  }

  #pod(value: unknown): PodRecord {
    const pod = objectOf(value);
    const { metadata, ...common } = this.#common(pod);
    const spec = objectOf(pod.spec);
    const status = objectOf(pod.status ?? {});
    return {
      resource: 'pods',
      ...common,
      namespace: this.#shared(nameOf(metadata.namespace)),
      serviceAccount: this.#shared(optionalName(spec.serviceAccountName) || 'default'),
      nodeName: this.#shared(optionalName(spec.nodeName)),
      addresses: this.#podAddresses(status),
      hostNetwork: optionalBoolean(spec.hostNetwork),
      phase: this.#shared(optionalName(status.phase)),
      deleting: metadata.deletionTimestamp !== undefined && metadata.deletionTimestamp !== null,
      running: hasRunning(status),
      started: timeOf(status.startTime) || common.started,
    };
  }

  #node(value: unknown): NodeRecord {
    const node = objectOf(value);
    const { metadata: _, ...common } = this.#common(node);
    const spec = objectOf(node.spec ?? {});
    const addresses = arrayOf(objectOf(node.status ?? {}).addresses).map(objectOf);
    const ofType = (type: string) =>
      this.#addresses(addresses.filter((entry) => entry.type === type).map(({ address }) => address));
    const networks = arrayOf(spec.podCIDRs);
    return {
      resource: 'nodes',
      ...common,
      internal: ofType('InternalIP'),
      external: ofType('ExternalIP'),
      podNetworks: this.#networks(networks.length > 0 ? networks : optionalList(spec.podCIDR)),
    };
  }

  #undecided(resource: 'pods' | 'nodes', object: Fields): PodRecord | NodeRecord {
    const metadata = objectOf(object.metadata);
    const spec = lenient(() => objectOf(object.spec ?? {}), {});
    const status = lenient(() => objectOf(object.status ?? {}), {});
    const common = {
      uid: nameOf(metadata.uid),
      name: nameOf(metadata.name),
      labels: NO_LABELS,
      version: parseVersion(metadata.resourceVersion) ?? damaged(),
      started: lenient(() => timeOf(metadata.creationTimestamp), 0),
      undecided: true,
    } as const;
    if (resource === 'nodes') {
      const addresses = lenient(() => arrayOf(status.addresses), NONE).map((entry) =>
        lenient(() => objectOf(entry), {}),
      );
      const ofType = (type: string) =>
        this.#readableAddresses(addresses.filter((entry) => entry.type === type).map(({ address }) => address));
      const networks = [...lenient(() => arrayOf(spec.podCIDRs), NONE), spec.podCIDR];
      const podNetworks = networks.flatMap((network) => lenient(() => this.#networks([network]), NONE));
      return { resource, ...common, internal: ofType('InternalIP'), external: ofType('ExternalIP'), podNetworks };
    }
    const list = lenient(() => arrayOf(status.podIPs), NONE).map((entry) => lenient(() => objectOf(entry).ip, ''));
    return {
      resource,
      ...common,
      namespace: nameOf(metadata.namespace),
      serviceAccount: lenient(() => optionalName(spec.serviceAccountName), ''),
      nodeName: lenient(() => optionalName(spec.nodeName), ''),
      addresses: this.#readableAddresses([...list, status.podIP]),
      hostNetwork: spec.hostNetwork === true,
      phase: lenient(() => optionalName(status.phase), ''),
      deleting: metadata.deletionTimestamp !== undefined && metadata.deletionTimestamp !== null,
      running: lenient(() => hasRunning(status), true),
    };
  }

  #readableAddresses(list: readonly unknown[]): readonly Address[] {
    const texts = list.filter((text) => typeof text === 'string');
    return [...new Set(texts.filter((text) => this.#isRead(text)).flatMap((text) => parseAddress(text) ?? []))];
  }

  #podAddresses(status: Fields): readonly Address[] {
    const list = arrayOf(status.podIPs).map((entry) => objectOf(entry).ip);
    return this.#addresses(list.length > 0 ? list : optionalList(status.podIP));
  }

  #addresses(list: readonly unknown[]): readonly Address[] {
    if (list.length > MAX_ADDRESSES) throw new Damaged();
    const found = list.map(textOf).filter((text) => this.#isRead(text));
    return found.length === 0 ? NONE : [...new Set(found.map((text) => parseAddress(text) ?? damaged()))];
  }

  #networks(list: readonly unknown[]): readonly Prefix[] {
    if (list.length > MAX_ADDRESSES) throw new Damaged();
    const found = list.map(textOf).filter((text) => this.#isRead(text));
    return found.length === 0 ? NONE : found.map((text) => (parseCidr(text) ?? damaged()).prefix);
  }

  /** Whether an address belongs into a record. A text with a colon is an IPv6 address. */
  #isRead(text: string): boolean {
    return this.readsIpv6 || !text.includes(':');
  }

  #namespace(value: unknown): NamespaceRecord {
    const { metadata: _, ...common } = this.#common(objectOf(value));
    return { resource: 'namespaces', ...common };
  }

  #common(object: Fields) {
    const metadata = objectOf(object.metadata);
    return {
      metadata,
      uid: nameOf(metadata.uid),
      name: nameOf(metadata.name),
      labels: this.#sharedLabels(labelsOf(metadata.labels)),
      version: parseVersion(metadata.resourceVersion) ?? damaged(),
      started: timeOf(metadata.creationTimestamp),
    };
  }

  #shared(text: string): string {
    const known = this.#strings.get(text);
    if (known !== undefined) return known;
    if (this.#strings.size >= STRING_CACHE) this.#strings.clear();
    this.#strings.set(text, text);
    return text;
  }

  /**
   * Returns an equal label list from the cache, or adds `labels` to the cache. The cache has one slot for
   * each hash value, so its size is fixed.
   */
  #sharedLabels(labels: Labels): Labels {
    if (labels.length === 0) return NO_LABELS;
    const place = hashOf(labels) % LABEL_CACHE;
    const known = this.#labels[place];
    if (known !== undefined && isSame(known, labels)) return known;
    this.#labels[place] = labels;
    return labels;
  }
}

class Damaged extends Error {}

type Fields = Readonly<Record<string, unknown>>;
const CONTAINER_LISTS = ['containerStatuses', 'initContainerStatuses', 'ephemeralContainerStatuses'] as const;

/** Returns the result of `read`, or `otherwise` if `read` throws because the data is damaged. */
function lenient<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch (failure) {
    if (failure instanceof Damaged) return otherwise;
    throw failure;
  }
}

function hasRunning(status: Fields): boolean {
  return CONTAINER_LISTS.some((list) => arrayOf(status[list]).some(isRunning));
}

function isRunning(status: unknown): boolean {
  const { running } = objectOf(objectOf(status).state ?? {});
  return running !== undefined && running !== null;
}

function labelsOf(value: unknown): Labels {
  if (value === undefined || value === null) return NO_LABELS;
  const labels = objectOf(value);
  const pairs: string[] = [];
  let characters = 0;
  for (const key of Object.keys(labels).sort()) {
    const text = textOf(labels[key]);
    characters += key.length + text.length;
    pairs.push(key, text);
  }
  if (characters > MAX_LABEL_CHARACTERS) throw new Damaged();
  return pairs;
}

function isSame(a: Labels, b: Labels): boolean {
  return a.length === b.length && a.every((text, index) => text === b[index]);
}

/** Returns the hash (FNV-1a) of the UTF-16 code units of labels. */
function hashOf(labels: Labels): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < labels.length; index++) {
    const text = itemAt(labels, index);
    for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  return hash >>> 0;
}

/** Parses a time in RFC 3339. Returns milliseconds since 1970, or 0 if the value is not a time. */
function timeOf(value: unknown): number {
  if (value === undefined || value === null) return 0;
  const time = Date.parse(textOf(value));
  return Number.isNaN(time) ? damaged() : time;
}

function objectOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : damaged();
}

function arrayOf(value: unknown): readonly unknown[] {
  if (value === undefined || value === null) return NONE;
  return Array.isArray(value) ? value : damaged();
}

function optionalList(value: unknown): readonly unknown[] {
  return value === undefined || value === null || value === '' ? NONE : [value];
}

function nameOf(value: unknown): string {
  return optionalName(value) || damaged();
}

function optionalName(value: unknown): string {
  if (value === undefined || value === null) return '';
  const text = textOf(value);
  return text.length <= MAX_NAME ? text : damaged();
}

function optionalBoolean(value: unknown): boolean {
  if (value === undefined || value === null) return false;
  return typeof value === 'boolean' ? value : damaged();
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : damaged();
}

function damaged(): never {
  throw new Damaged();
}
