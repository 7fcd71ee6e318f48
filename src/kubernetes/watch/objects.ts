import type { Address, Prefix } from '#contracts/policy/policy-model.js';

/**
 * The parts of Kubernetes objects that selectors use (D38a). Without IPv6 policies, the IPv6 addresses of an
 * object are omitted.
 */

/**
 * The labels of an object: each key and its value, sorted by key. Objects with equal labels may share one
 * list.
 */
export type Labels = readonly string[];

/**
 * Fields that all objects have. `version`: the resource version. `started`: the start of the object in
 * milliseconds since 1970, or 0 if the object has no such time. `undecided`: selectors cannot be evaluated
 * for the object, because a part of it exceeds a limit or has the wrong shape.
 */
type ObjectRecord = {
  readonly uid: string;
  readonly name: string;
  readonly labels: Labels;
  readonly version: number;
  readonly started: number;
  readonly undecided?: true;
};

export type PodRecord = ObjectRecord & {
  readonly resource: 'pods';
  readonly namespace: string;
  readonly serviceAccount: string;
  /** The name of the node; empty if the pod is not scheduled yet. */
  readonly nodeName: string;
  readonly addresses: readonly Address[];
  readonly hostNetwork: boolean;
  /** The phase of the pod: Pending, Running, Succeeded, Failed or Unknown. */
  readonly phase: string;
  /** Whether the pod has a deletion time. */
  readonly deleting: boolean;
  /** Whether at least one container runs, init containers and ephemeral containers included. */
  readonly running: boolean;
};

export type NodeRecord = ObjectRecord & {
  readonly resource: 'nodes';
  readonly internal: readonly Address[];
  readonly external: readonly Address[];
  /** The networks of `podCIDRs`. */
  readonly podNetworks: readonly Prefix[];
};

export type NamespaceRecord = ObjectRecord & { readonly resource: 'namespaces' };

export type KubernetesObject = PodRecord | NodeRecord | NamespaceRecord;
export type ResourceName = KubernetesObject['resource'];

/**
 * A message from a list or a watch. `listed`: all objects of the scope at a version. An incomplete list sends
 * no message, so the former objects stay in force until the list is complete. Changes and deletions follow in
 * the order in which the server sends them. `version`: the resource version of the list or of the deletion.
 */
export type ObjectMessage<Kept = KubernetesObject> =
  | { readonly type: 'listed'; readonly objects: readonly Kept[]; readonly version: number }
  | { readonly type: 'changed'; readonly object: Kept }
  | { readonly type: 'deleted'; readonly uid: string; readonly version: number };
