/** The objects that one reflector lists and watches. Without `namespace`: of all namespaces. */
export type Scope = {
  readonly kind: 'pod' | 'node' | 'namespace';
  readonly namespace?: string | undefined;
  /** The only node whose pods belong to the scope. */
  readonly node?: string | undefined;
};

/** The objects that the selectors of an integration need. */
export type Wanted = {
  /** The namespaces whose pods are needed; `all` for the pods of all namespaces. */
  readonly pods: ReadonlySet<string> | 'all';
  readonly nodes: boolean;
  readonly namespaces: boolean;
  /** The only node whose pods are needed (`kubernetes.scope: node`); null for the pods of all nodes. */
  readonly node: string | null;
};

/**
 * With more namespaces than this, one watch of all pods replaces one watch for each namespace. A service
 * account that may read few namespaces needs only a Role in each.
 */
const MOST_NAMESPACES = 8;

/**
 * A pod that has completed has no address. With this selector, the server sends `DELETED` when a pod
 * completes.
 */
const NOT_COMPLETED = 'status.phase!=Succeeded,status.phase!=Failed';

export function scopesOf({ pods, nodes, namespaces, node }: Wanted): readonly Scope[] {
  const named = pods === 'all' || pods.size > MOST_NAMESPACES ? [undefined] : [...pods].sort();
  return [
    ...named.map((namespace): Scope => ({ kind: 'pod', namespace, node: node ?? undefined })),
    ...(nodes ? [{ kind: 'node' } as const] : []),
    ...(namespaces ? [{ kind: 'namespace' } as const] : []),
  ];
}

/** Returns the path of the objects of a scope, without query. */
export function pathOf({ kind, namespace }: Scope): string {
  return `/api/v1${namespace === undefined ? '' : `/namespaces/${encodeURIComponent(namespace)}`}/${kind}s`;
}

/** Returns the field selector of a scope; undefined if all objects belong to the scope. */
export function fieldSelectorOf({ kind, node }: Scope): string | undefined {
  if (kind !== 'pod') return undefined;
  return node === undefined ? NOT_COMPLETED : `${NOT_COMPLETED},spec.nodeName=${node}`;
}

/** Returns the name of a scope. Scopes with equal names have equal objects. */
export function nameOf({ kind, namespace, node }: Scope): string {
  return `${namespace === undefined ? '' : `${namespace}/`}${kind}s${node === undefined ? '' : ` on ${node}`}`;
}
