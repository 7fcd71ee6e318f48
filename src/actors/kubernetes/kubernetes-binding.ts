import { setTimeout as pause } from 'node:timers/promises';
import { concatMap, type Observable, ReplaySubject, Subject, type Subscription } from 'rxjs';
import type {
  KubernetesSource,
  ReflectorChange,
  StoredObject,
  WatchedIntegration,
} from '#contracts/kubernetes/kubernetes-source.js';
import { type ListedMembership, NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import { addListener } from '#contracts/listeners.js';
import type { Selector } from '#contracts/policy/policy-model.js';
import type { SupervisedPart } from '#contracts/supervised-part.js';
import type { MemberDistribution } from '#kubernetes/distribution/member-distribution.js';
import type { MemberOptions } from '#policies/write/prepare-in-thread.js';
import type { IntegrationStore } from '#store/store-types.js';

/** The parts of the node that `KubernetesBinding` connects with the Kubernetes thread, which is `source`. */
export type KubernetesBindingPorts = {
  readonly source: KubernetesSource;
  readonly integrations: IntegrationStore;
  /** The name of the Kubernetes integration for the cluster in which this node runs; null without one. */
  readonly inCluster: string | null;
  readonly stored: () => Promise<readonly StoredObject[]>;
  readonly distribution: MemberDistribution;
  /**
   * Returns whether no policy is being prepared or put in force. Only the selectors of the policy in force
   * are then needed.
   */
  readonly isAtRest: () => boolean;
  /**
   * The time in milliseconds for which the Kubernetes selectors of a dry run are still watched, by default
   * `RELEASE_MS`. Tests shorten it.
   */
  readonly releaseMs?: number | undefined;
};

/**
 * The maximum time in milliseconds for which a compilation waits for the start of the Kubernetes thread.
 * After this time, it treats all selectors as unresolved. The thread needs some seconds to restore the stored
 * objects of a large cluster.
 */
const THREAD_WAIT_MS = 15_000;

/**
 * The time in milliseconds for which the Kubernetes thread still watches the selectors of a dry run or of a
 * refused write. The write often follows its dry run, and then need not wait for new lists.
 */
const RELEASE_MS = 60_000;

/**
 * Runs the Kubernetes thread for the node. It starts the thread with the first stored integration, sends the
 * integrations and the selectors to it, and passes its members to `MemberDistribution`. The statechart of
 * supervised parts calls `begin` and `watch`.
 */
export class KubernetesBinding implements SupervisedPart {
  readonly #ports: KubernetesBindingPorts;
  readonly #names = new ReplaySubject<readonly string[]>(1);
  readonly #reflectors = new Subject<ReflectorChange>();
  readonly #listeners = new Set<(failure: string | null) => void>();
  #following: Subscription | null = null;
  #open: Promise<void> | null = null;
  /** The Kubernetes integrations that the thread uses, by name. */
  #used: ReadonlyMap<string, WatchedIntegration> = new Map();
  /** Why the thread ended; null after the first message with members of the next thread. */
  #threadFailure: string | null = null;
  #releasing: NodeJS.Timeout | undefined;
  #isBegun: () => void = () => {};
  readonly #begun = new Promise<void>((resolve) => {
    this.#isBegun = resolve;
  });

  constructor(ports: KubernetesBindingPorts) {
    this.#ports = ports;
  }

  get names(): Observable<readonly string[]> {
    return this.#names;
  }

  get reflectors(): Observable<ReflectorChange> {
    return this.#reflectors;
  }

  async begin(): Promise<void> {
    await this.#useIntegrations();
    this.#isBegun();
    // The thread has ended, and its successor has not sent members (addresses of pods and nodes) yet.
    if (this.#threadFailure !== null) throw new Error(this.#threadFailure);
    this.#following ??= this.#ports.integrations.changed.pipe(concatMap(() => this.#followIntegrations())).subscribe();
  }

  watch(listener: (failure: string | null) => void): () => void {
    return addListener(this.#listeners, listener);
  }

  /**
   * Returns the resolution and the members of selectors for a compilation. Waits at most `waitMs`
   * milliseconds until all selectors are resolved. If the thread fails, returns the last members, or no
   * resolved selectors if there were no members yet. Without `mayWatch`, returns the last members at once,
   * and starts no watch for the selectors.
   */
  async membership(selectors: readonly Selector[], { waitMs, mayWatch }: MemberOptions): Promise<ListedMembership> {
    if (!mayWatch) return this.#ports.distribution.listed();
    const isLate = pause(THREAD_WAIT_MS, true, { ref: false });
    if (await Promise.race([this.#begun.then(() => false), isLate])) return NOTHING_LISTED;
    if (this.#open === null) return NOTHING_LISTED;
    try {
      this.#releaseLater();
      const all = await this.#ports.source.membership(selectors, waitMs);
      if (this.#ports.distribution.hasRoomForFormer) return all;
      const { former: _, ...others } = all;
      return others;
    } catch (failure) {
      // Report the failure and compile with the last members, which stay in force (D19a). Without a
      // compilation, no rule would be in force after a start.
      this.#report(failure instanceof Error ? failure.message : String(failure));
      return this.#ports.distribution.listed();
    }
  }

  /** Sends the Kubernetes selectors of the policy in force to the thread. */
  setSelectors(selectors: readonly Selector[]): void {
    this.#ports.source.setSelectors(selectors);
  }

  async close(): Promise<void> {
    clearTimeout(this.#releasing);
    this.#following?.unsubscribe();
    await this.#ports.source.close();
  }

  /**
   * Ends the watch of the selectors of proposed policies `RELEASE_MS` after the last call of `membership`,
   * but not while a policy is being prepared or put in force.
   */
  #releaseLater(): void {
    clearTimeout(this.#releasing);
    const release = (): void => {
      if (this.#ports.isAtRest()) this.#ports.source.release();
      else this.#releaseLater();
    };
    this.#releasing = setTimeout(release, this.#ports.releaseMs ?? RELEASE_MS).unref();
  }

  /** Applies changed integrations. Reports a failure; the next call of `begin` tries again. */
  async #followIntegrations(): Promise<void> {
    try {
      await this.#useIntegrations();
    } catch (failure) {
      this.#report(failure instanceof Error ? failure.message : String(failure));
    }
  }

  async #useIntegrations(): Promise<void> {
    const { source, integrations, inCluster, distribution } = this.#ports;
    const stored = (await integrations.list()).filter(({ name }) => name !== inCluster);
    const all = stored.map(
      ({ name, api_server_url: url, ca_cert_pem: caPem, service_account_token: token }): WatchedIntegration => ({
        name,
        access: { by: 'token', url, caPem, token },
      }),
    );
    // Keep an integration (a Kubernetes API server) whose record cannot be read: without its members, packets
    // would pass that a deny rule must drop.
    for (const name of integrations.unreadable) {
      const known = this.#used.get(name);
      if (known !== undefined) all.push(known);
    }
    if (inCluster !== null) all.push({ name: inCluster, access: { by: 'in_cluster' } });
    this.#used = new Map(all.map((each) => [each.name, each]));
    this.#names.next(all.map(({ name }) => name));
    if (all.length === 0 && this.#open === null) return;
    source.setIntegrations(all);
    this.#open ??= source.open(this.#ports.stored, {
      members: async (message) => {
        await distribution.apply(message);
        if (message.replaces === null) return;
        this.#threadFailure = null;
        this.#report(null);
      },
      reflector: (change) => this.#reflectors.next(change),
      failed: (reason) => {
        this.#threadFailure = reason;
        this.#report(reason);
      },
    });
    await this.#open.catch((failure: unknown) => {
      this.#open = null;
      throw failure;
    });
  }

  #report(failure: string | null): void {
    for (const listener of this.#listeners) listener(failure);
  }
}
