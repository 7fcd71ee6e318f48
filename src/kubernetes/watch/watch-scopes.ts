import type { ResourceName } from './objects.js';

/**
 * The objects that one reflector lists and watches. Null stands for all namespaces, or for the pods of all
 * nodes.
 */
export type WatchScope = {
  readonly resource: ResourceName;
  readonly namespace: string | null;
  readonly node: string | null;
};

/** The objects that the selectors of an integration need. */
export type WantedObjects = {
  /** The namespaces whose pods are needed; `all` for the pods of all namespaces. */
  readonly pods: ReadonlySet<string> | 'all';
  readonly nodes: boolean;
  readonly namespaces: boolean;
  /** The only node whose pods are needed (`kubernetes.scope: node`); null for the pods of all nodes. */
  readonly node: string | null;
};

/**
 * The maximum number of namespaces with a separate watch. Above this number, one watch of all pods is used.
 * Separate watches need only a Role in each namespace.
 */
const MAX_NAMESPACES = 8;

/** Excludes completed pods, which have no address. The server then sends `DELETED` when a pod completes. */
const NOT_COMPLETED = 'status.phase!=Succeeded,status.phase!=Failed';

export function watchScopesOf({ pods, nodes, namespaces, node }: WantedObjects): readonly WatchScope[] {
  const named = pods === 'all' || pods.size > MAX_NAMESPACES ? [null] : [...pods].sort();
  const all = { namespace: null, node: null };
  return [
    ...named.map((namespace): WatchScope => ({ resource: 'pods', namespace, node })),
    ...(nodes ? [{ resource: 'nodes', ...all } as const] : []),
    ...(namespaces ? [{ resource: 'namespaces', ...all } as const] : []),
  ];
}

export function isSameWatchScope(a: WatchScope, b: WatchScope): boolean {
  return a.resource === b.resource && a.namespace === b.namespace && a.node === b.node;
}

/** Returns the path of the objects of a scope, without query. */
export function pathOf({ resource, namespace }: WatchScope): string {
  return `/api/v1${namespace === null ? '' : `/namespaces/${encodeURIComponent(namespace)}`}/${resource}`;
}

/** Returns the field selector of a scope; undefined if all objects belong to the scope. */
export function fieldSelectorOf({ resource, node }: WatchScope): string | undefined {
  if (resource !== 'pods') return undefined;
  return node === null ? NOT_COMPLETED : `${NOT_COMPLETED},spec.nodeName=${node}`;
}

/** Returns the name of a scope. Scopes with equal names contain the same objects. */
export function nameOf({ resource, namespace, node }: WatchScope): string {
  return `${namespace === null ? '' : `${namespace}/`}${resource}${node === null ? '' : ` on ${node}`}`;
}
