import type {
  IntegrationFacts,
  KubernetesOptions,
  MemberPage,
  MembersMessage,
  ObjectCounts,
  ReflectorChange,
  StoredObject,
  WatchedIntegration,
} from '#contracts/kubernetes/kubernetes-source.js';
import type { ListedMembership } from '#contracts/kubernetes/membership.js';
import type { Address, Selector } from '#contracts/policy/policy-model.js';
import type { ReflectorTimes } from '#kubernetes/watch/reflector.js';

/** This file defines the messages and the requests between the main thread and the Kubernetes thread. */

/** Options of the Kubernetes thread that only tests change. */
export type KubernetesThreadOptions = KubernetesOptions & {
  readonly times?: ReflectorTimes | undefined;
  readonly firstMessageMs?: number | undefined;
  /** The folder with the files of the service account. */
  readonly serviceAccountFolder?: string | undefined;
};

/** `acknowledgement`: the shared memory of an `Acknowledgement`. */
export type KubernetesWorkerData = {
  readonly options: KubernetesThreadOptions;
  readonly acknowledgement: SharedArrayBuffer;
};

export type KubernetesRequests = {
  readonly membership: (selectors: readonly Selector[], withinMs: number) => ListedMembership;
  readonly facts: (integration: string) => IntegrationFacts;
  readonly objectCounts: (integration: string) => ObjectCounts;
  readonly membersOf: (keys: readonly string[], after: Address | null, limit: number) => MemberPage;
};

export type ToKubernetesThread =
  /** Sends a part of the Kubernetes objects in the store to the thread. */
  | { readonly kind: 'stored'; readonly objects: readonly StoredObject[] }
  /** Tells the thread that all stored objects were sent. */
  | { readonly kind: 'open' }
  | { readonly kind: 'setIntegrations'; readonly integrations: readonly WatchedIntegration[] }
  | { readonly kind: 'setSelectors'; readonly selectors: readonly Selector[] }
  /** Sent to a new thread: the selectors of a call of `membership` that the previous thread received. */
  | { readonly kind: 'setProposedSelectors'; readonly selectors: readonly Selector[] }
  /** Ends the watches for the selectors of the last call of `membership`, see `KubernetesSource.release`. */
  | { readonly kind: 'release' }
  /**
   * The listener has applied the last message with members (addresses of pods and nodes). This message is
   * sent only if the thread waits for it.
   */
  | { readonly kind: 'members_applied' };

export type FromKubernetesThread =
  | { readonly kind: 'members'; readonly message: MembersMessage }
  | { readonly kind: 'reflector'; readonly change: ReflectorChange };
