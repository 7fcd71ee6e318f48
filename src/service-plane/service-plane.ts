import type { MessagePort } from 'node:worker_threads';
import type { ServicePlaneSettings } from '#contracts/config/config-reload.js';
import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';
import type { SeenConnections } from '#contracts/service-plane/seen-connection.js';
import type { ServicePlaneStats } from '#contracts/service-plane/service-plane-stats.js';
import type { InterceptCa } from './ca/intercept-ca.js';

/**
 * The interface between the `servicePlane` actor and the service plane (TLS and HTTP inspection), which runs
 * in worker threads. No work per connection passes through this interface.
 */
export type ServicePlane = {
  /** Starts the threads in advance, so that they load their code before the first `open`. */
  begin(): void;
  /**
   * Listens in every thread. Until the first call of `use`, the service plane (TLS and HTTP inspection)
   * resets connections. If a socket was open before, and with `awaitsGrants`, connections wait in the sockets
   * until `setGrantPorts` or `accept`, at most 30 seconds. Rejects if the address cannot be bound.
   */
  open(options?: { readonly awaitsGrants?: boolean }): Promise<void>;
  /**
   * Changes the settings of all threads; open connections stay. New connections and requests get the new
   * settings. Rejects and changes nothing if the CA certificates cannot be read. A service plane that is not
   * open takes the settings at its next `open`.
   */
  change(settings: ServicePlaneSettings): Promise<void>;
  /** Sets the policy that decides new connections. Also evaluates existing connections again (D19b). */
  use(inspection: InspectionImage): void;
  /** Resolves when all open connections are decided by the policy of the last `use`. */
  decided(): Promise<void>;
  /**
   * Sets the policy, and ends the wait of `open`: threads accept connections before `setGrantPorts`. A
   * connection whose decision needs grants still waits for `setGrantPorts`, at most 30 seconds.
   */
  accept(inspection: InspectionImage): void;
  /**
   * Changes which Kubernetes objects own source addresses (D38a), and evaluates the existing connections of
   * these sources again. Resolves when all threads apply the change to their connections. The members of a
   * policy must be set before `use` or `accept`. A service plane (TLS and HTTP inspection) that is not open
   * applies the change from its next `open` on.
   */
  changeMembers(change: MembershipChange): Promise<void>;
  /**
   * Replaces all members (addresses that Kubernetes objects own). Before the first call, no source gets an
   * allow rule by a selector.
   */
  replaceMembers(list: MemberList): Promise<void>;
  /**
   * Sets the CA that signs leaf certificates. With null, the service plane intercepts no connection. A
   * connection that a rule would intercept is then denied; in audit mode, it passes uninspected.
   */
  useCa(ca: InterceptCa | null): void;
  /**
   * The number of threads. `setGrantPorts` takes one `MessagePort` for each thread. The thread requests the
   * grants of addresses over this port; see `Datapath.grantPort`.
   */
  readonly threads: number;
  setGrantPorts(ports: readonly MessagePort[]): void;
  /**
   * Allows the service plane (TLS and HTTP inspection) to offload decided connections from now on: the
   * datapath then forwards their packets. See `Datapath.spliceOffload`.
   */
  spliceBy(point: SpliceOffload): void;
  stats(): Promise<ServicePlaneStats>;
  /**
   * Calls `listener` with each current fault, and later with each change. Returns a function that removes the
   * listener.
   */
  watch(listener: (change: ServicePlaneChange) => void): () => void;
  observe(listener: (seen: SeenConnections) => void): () => void;
  /**
   * Sets whether `observe` also reports allowed connections and requests. The initial setting is false. The
   * setting survives `close` and `open`.
   */
  setAllowedWanted(wanted: boolean): void;
  /** Resets all connections, and closes the listening sockets. */
  close(): Promise<void>;
};

export type ServicePlaneChange =
  | { readonly type: 'worker_died'; readonly reason: string }
  /**
   * The new value of `upstreamCaFault` or `spliceFault` in `ServicePlaneStats`. After `open`, both faults are
   * null.
   */
  | { readonly type: 'upstream_ca_changed' | 'splice_fault_changed'; readonly fault: string | null };
