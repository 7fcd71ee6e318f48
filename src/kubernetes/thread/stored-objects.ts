import { formatAddress, parseAddress } from '#addresses/ip-address.js';
import type { StoredObject } from '#contracts/kubernetes/kubernetes-source.js';
import type { CompleteScope, IntegrationObjects, OwningObject } from '#kubernetes/members/integration-objects.js';
import type { ResourceName } from '#kubernetes/watch/objects.js';
import { areCompleteScopes, isOwningObject } from './stored-shape.js';

/**
 * The objects in the store. Each key begins with the name of the integration.
 * - `prod/pods/UID`: an object, and the addresses that it owns (`OwningObject`). These are stored because
 *   start times alone could return an address to an object that lost it to a later claim.
 * - `prod/complete`: the cluster, and the watch scopes with a complete list, and their versions. It is
 *   written after all objects of these scopes. Without it, the objects have no effect.
 */
type CompleteRecord = { readonly format: number; readonly cluster: string; readonly scopes: readonly CompleteScope[] };

/** The objects of an integration (Kubernetes API server) that an earlier process has stored. */
export type RestoredObjects = {
  readonly cluster: string;
  readonly objects: readonly OwningObject[];
  readonly scopes: readonly CompleteScope[];
};

/**
 * The formats of the records: without the IPv6 addresses of objects, and with them. Records of another format
 * are removed, because a watch that continues would not send unchanged objects again.
 */
const FORMATS = { ipv4: 1, both: 2 } as const;

function formatOf(hasIpv6: boolean): number {
  return hasIpv6 ? FORMATS.both : FORMATS.ipv4;
}
const COMPLETE = 'complete';

/** The stored data of a Kubernetes API server. `cluster`: undefined if no list is complete. */
export type StoredIntegration = {
  readonly cluster: string | undefined;
  readonly objects: Pick<IntegrationObjects, 'owning' | 'complete'> | undefined;
};

/** Records which objects have changed, and returns the changes for the store. */
export class ObjectChanges {
  /**
   * For each integration (a Kubernetes API server), the rest of the store key after its name: a resource and
   * a UID.
   */
  readonly #changed = new Map<string, Set<string>>();
  readonly #removed: string[] = [];

  /** `hasIpv6`: whether the objects have their IPv6 addresses. */
  constructor(private readonly hasIpv6 = false) {}

  changed(integration: string, resource: ResourceName, uid: string): void {
    const key = `${resource}/${uid}`;
    const known = this.#changed.get(integration);
    if (known === undefined) this.#changed.set(integration, new Set([key]));
    else known.add(key);
  }

  /**
   * Records that the complete watch scopes (objects of one list and watch) of an integration (a Kubernetes
   * API server) may have changed.
   */
  scopesChanged(integration: string): void {
    if (!this.#changed.has(integration)) this.#changed.set(integration, new Set());
  }

  /**
   * Discards the changes of an integration (a Kubernetes API server) whose objects were restored from the
   * store.
   */
  stored(integration: string): void {
    this.#changed.delete(integration);
  }

  remove(keys: Iterable<string>): void {
    for (const key of keys) this.#removed.push(key);
  }

  /**
   * Returns the changes of stored objects since the last call. `complete`: records that must be written after
   * all objects.
   */
  drain(integrationOf: (name: string) => StoredIntegration): {
    readonly objects: readonly StoredObject[];
    readonly complete: readonly StoredObject[];
  } {
    const objects = this.#removed.splice(0).map((key): StoredObject => ({ key, value: null }));
    const complete: StoredObject[] = [];
    for (const [name, keys] of this.#changed) {
      const { cluster, objects: known } = integrationOf(name);
      for (const key of keys) {
        const at = key.indexOf('/');
        const object = known?.owning(key.slice(0, at) as ResourceName, key.slice(at + 1));
        objects.push({ key: `${name}/${key}`, value: object === undefined ? null : recordText(object) });
      }
      const scopes = known?.complete ?? [];
      const record: CompleteRecord | null =
        cluster === undefined ? null : { format: formatOf(this.hasIpv6), cluster, scopes };
      complete.push({ key: `${name}/${COMPLETE}`, value: record === null ? null : JSON.stringify(record) });
    }
    this.#changed.clear();
    return { objects, complete };
  }
}

/** The records of the store, until the integrations are known. */
export class StoredRecords {
  readonly #integrations = new Map<string, StoredObject[]>();

  /** `hasIpv6`: whether the objects must have their IPv6 addresses. */
  constructor(private readonly hasIpv6 = false) {}

  add(records: readonly StoredObject[]): void {
    for (const record of records) {
      const name = record.key.slice(0, Math.max(record.key.indexOf('/'), 0));
      const known = this.#integrations.get(name);
      if (known === undefined) this.#integrations.set(name, [record]);
      else known.push(record);
    }
  }

  get names(): Iterable<string> {
    return this.#integrations.keys();
  }

  keysOf(name: string): readonly string[] {
    return (this.#integrations.get(name) ?? []).map(({ key }) => key);
  }

  clear(): void {
    this.#integrations.clear();
  }

  /**
   * Returns the objects of an integration (a Kubernetes API server); undefined if they are not complete, or
   * have another format or shape.
   */
  objectsOf(name: string): RestoredObjects | undefined {
    const records = this.#integrations.get(name) ?? [];
    try {
      const completeKey = `${name}/${COMPLETE}`;
      const text = records.find(({ key }) => key === completeKey)?.value;
      if (text == null) return undefined;
      const complete: unknown = JSON.parse(text);
      if (!isCompleteRecord(complete) || complete.format !== formatOf(this.hasIpv6)) return undefined;
      const { cluster, scopes } = complete;
      const objects: OwningObject[] = [];
      for (const { key, value } of records) {
        if (key === completeKey || value === null) continue;
        const object = parseRecord(value);
        if (!isOwningObject(object)) return undefined;
        objects.push(object);
      }
      return { cluster, objects, scopes };
    } catch {
      return undefined;
    }
  }
}

/**
 * Returns a record as JSON. JSON has no bigint, so an IPv6 address becomes the object `{"ipv6": "fd00::1"}`.
 */
function recordText(record: OwningObject): string {
  return JSON.stringify(record, (_, value: unknown) =>
    typeof value === 'bigint' ? { ipv6: formatAddress(value) } : value,
  );
}

/** Parses a text of `recordText`. */
function parseRecord(text: string): unknown {
  return JSON.parse(text, (_, value: unknown) => {
    const { ipv6 } = (value ?? {}) as { readonly ipv6?: unknown };
    return typeof ipv6 === 'string' ? parseAddress(ipv6) : value;
  });
}

function isCompleteRecord(value: unknown): value is CompleteRecord {
  if (typeof value !== 'object' || value === null) return false;
  const { format, cluster, scopes } = value as Readonly<Record<string, unknown>>;
  return typeof format === 'number' && typeof cluster === 'string' && areCompleteScopes(scopes);
}
