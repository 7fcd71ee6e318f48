import { randomBytes } from 'node:crypto';
import type { MessagePort } from 'node:worker_threads';
import type { ServicePlaneSettings } from '#contracts/config/config-reload.js';
import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import { addListener } from '#contracts/listeners.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';
import { planeAddress } from '#contracts/service-plane/plane-address.js';
import type { SeenConnections } from '#contracts/service-plane/seen-connection.js';
import type { InterceptCa } from '#service-plane/ca/intercept-ca.js';
import type { ServicePlane, ServicePlaneChange } from '#service-plane/service-plane.js';
import { sumOf } from '#service-plane/service-plane-counts.js';
import type { ServicePlaneOptions } from '#service-plane/service-plane-options.js';
import {
  descriptorIn,
  type ListeningSocket,
  ListeningSockets,
  MAX_WAIT_MS,
} from '#sockets/listening/listening-sockets.js';
import { canAssignToShared } from '#sockets/socket-options.js';
import { PlaneThread } from './plane-thread.js';
import type { ThreadNumber, ToPlaneThread } from './service-plane-messages.js';

const TICKET_KEY_BYTES = 48;

type Faults = Readonly<Record<Exclude<ServicePlaneChange['type'], 'worker_died'>, string | null>>;
const NO_FAULTS: Faults = { upstream_ca_changed: null, splice_fault_changed: null };
const FAULT_CHANGES = ['upstream_ca_changed', 'splice_fault_changed'] as const satisfies readonly (keyof Faults)[];

/**
 * Creates a service plane (TLS and HTTP inspection) that runs in its own threads. All threads listen on one
 * address, and the kernel distributes connections among the threads. If a thread ends unexpectedly, its
 * connections are reset, and `watch` reports `worker_died`. The next `open` starts all threads again.
 * `members` returns all members (addresses that Kubernetes objects own) for a new thread; null while they are
 * not known. The caller must change its own record of the members before it calls `changeMembers` or
 * `replaceMembers`, because a new thread starts with this record.
 */
export function createServicePlane(
  options: ServicePlaneOptions,
  sockets = new ListeningSockets(),
  members: () => MemberList | null = () => null,
): ServicePlane {
  return new ServicePlaneThreads(options, sockets, members);
}

class ServicePlaneThreads implements ServicePlane {
  /**
   * All threads use the same ticket keys, also after a restart, so that clients can resume their TLS sessions
   * in any thread.
   */
  readonly #ticketKeys = randomBytes(TICKET_KEY_BYTES);
  readonly #watchers = new Set<(change: ServicePlaneChange) => void>();
  readonly #observers = new Set<(seen: SeenConnections) => void>();
  #threads: readonly PlaneThread[] = [];
  /** True if `begin` has started threads that the next `open` uses. */
  #isBegun = false;
  #inspection: InspectionImage | null = null;
  #ca: InterceptCa | null = null;
  #allowedWanted = false;
  /** The policy that `accept` received; null after `use` or `setGrantPorts`. */
  #early: InspectionImage | null = null;
  #faults = NO_FAULTS;

  constructor(
    private options: ServicePlaneOptions,
    private readonly sockets: ListeningSockets,
    private readonly members: () => MemberList | null,
  ) {}

  get threads(): number {
    return this.options.workers;
  }

  begin(): void {
    this.#start();
    this.#isBegun = true;
  }

  async open({ awaitsGrants = false }: { readonly awaitsGrants?: boolean } = {}): Promise<void> {
    const isBegun = this.#isBegun && this.#threads.every(({ isOver }) => !isOver);
    if (!isBegun) await this.#end();
    const { families, listen, mark, workers } = this.options;
    // If a thread cannot have listening sockets of its own, all threads accept from the same sockets.
    const hasOwn = canAssignToShared();
    const socketsOf = (number: number): ListeningSocket[] =>
      families.map((family) => ({
        ...{ address: planeAddress(listen, family), port: listen.port },
        ...{ kind: 'tcp', mark, isTransparent: true, ...(hasOwn ? { shared: number } : {}) },
      }));
    const wanted = Array.from({ length: hasOwn ? workers : 1 }, (_, number) => socketsOf(number)).flat();
    const { descriptors, isKept } = this.sockets.open('plane', wanted);
    const waitMs = awaitsGrants && isKept ? MAX_WAIT_MS : 0;
    if (!isBegun) this.#start();
    this.#isBegun = false;
    const threads = this.#threads;
    // Send the members before each policy, so that no thread decides by a policy without its members.
    const list = this.members();
    if (list !== null) this.#sendToAll({ kind: 'members', list });
    if (this.#inspection !== null) this.#sendToAll({ kind: 'use', inspection: this.#inspection });
    this.#sendToAll({ kind: 'use_ca', ca: this.#ca });
    this.#sendToAll({ kind: 'allowed_wanted', wanted: this.#allowedWanted });
    try {
      const opening = threads.map((thread, number) => {
        const fds = socketsOf(number).map((socket) => descriptorIn(descriptors, 'plane', socket));
        return thread.open(fds, waitMs);
      });
      if (this.#early !== null) this.#sendToAll({ kind: 'accept', inspection: this.#early });
      await Promise.all(opening);
      if (threads.some(({ isOver }) => isOver))
        throw new Error('start the threads of the TLS and HTTP inspection: a thread ended immediately');
    } catch (failure) {
      await this.#end();
      throw failure;
    }
  }

  async change(settings: ServicePlaneSettings): Promise<void> {
    const changing = await Promise.allSettled(this.#threads.map((thread) => thread.change(settings)));
    const failed = changing.find((one) => one.status === 'rejected');
    if (failed !== undefined) {
      // Restore the previous settings in all threads. Ignore failures: a thread that has died starts again
      // with these settings.
      await Promise.allSettled(this.#threads.map((thread) => thread.change(this.options)));
      throw failed.reason;
    }
    this.options = { ...this.options, ...settings };
  }

  use(inspection: InspectionImage): void {
    this.#inspection = inspection;
    this.#early = null;
    this.#sendToAll({ kind: 'use', inspection });
  }

  async decided(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.decided()));
  }

  accept(inspection: InspectionImage): void {
    // Ignore this policy, because the policy that `use` received is newer.
    if (this.#inspection !== null) return;
    this.#early = inspection;
    this.#sendToAll({ kind: 'accept', inspection });
  }

  async changeMembers(change: MembershipChange): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.changeMembers(change)));
  }

  async replaceMembers(list: MemberList): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.replaceMembers(list)));
  }

  useCa(ca: InterceptCa | null): void {
    this.#ca = ca;
    this.#sendToAll({ kind: 'use_ca', ca });
  }

  setGrantPorts(ports: readonly MessagePort[]): void {
    this.#early = null;
    for (const [index, port] of ports.entries()) {
      const thread = this.#threads[index];
      if (thread === undefined) port.close();
      else thread.tell({ kind: 'grants_by', port }, [port]);
    }
  }

  spliceBy(point: SpliceOffload): void {
    for (const thread of this.#threads) thread.spliceBy(point);
  }

  stats = async (): ReturnType<ServicePlane['stats']> => ({
    ...sumOf(await Promise.all(this.#threads.map((thread) => thread.stats()))),
    spliceFault: this.#faults.splice_fault_changed,
  });

  watch(listener: (change: ServicePlaneChange) => void): () => void {
    this.#watchers.add(listener);
    for (const type of FAULT_CHANGES) if (this.#faults[type] !== null) listener({ type, fault: this.#faults[type] });
    return () => {
      this.#watchers.delete(listener);
    };
  }

  observe(listener: (seen: SeenConnections) => void): () => void {
    return addListener(this.#observers, listener);
  }

  setAllowedWanted(wanted: boolean): void {
    this.#allowedWanted = wanted;
    this.#sendToAll({ kind: 'allowed_wanted', wanted });
  }

  async close(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.close().catch(() => {})));
    await this.#end();
    this.sockets.close('plane');
  }

  #start(): void {
    const count = this.options.workers;
    this.#threads = Array.from({ length: count }, (_, number) => this.#thread({ number, count }));
    this.#faults = NO_FAULTS;
  }

  #thread(number: ThreadNumber): PlaneThread {
    return new PlaneThread({ options: this.options, ticketKeys: this.#ticketKeys }, number, {
      onSeen: (seen) => {
        for (const observer of this.#observers) observer(seen);
      },
      onFault: () => this.#updateFaults(),
      onDeath: (reason) => this.#notify({ type: 'worker_died', reason }),
    });
  }

  /**
   * Reports a fault once for all threads, because all threads have the same faults but detect them at
   * different times.
   */
  #updateFaults(): void {
    const before = this.#faults;
    this.#faults = {
      upstream_ca_changed: this.#threads.find((thread) => thread.upstreamCaFault !== null)?.upstreamCaFault ?? null,
      splice_fault_changed: this.#threads.find((thread) => thread.spliceFault !== null)?.spliceFault ?? null,
    };
    for (const type of FAULT_CHANGES)
      if (this.#faults[type] !== before[type]) this.#notify({ type, fault: this.#faults[type] });
  }

  #notify(change: ServicePlaneChange): void {
    for (const watcher of this.#watchers) watcher(change);
  }

  #sendToAll(message: ToPlaneThread): void {
    for (const thread of this.#threads) thread.tell(message);
  }

  async #end(): Promise<void> {
    const threads = this.#threads;
    this.#threads = [];
    await Promise.all(threads.map((thread) => thread.end()));
  }
}
