import type { Socket } from 'node:net';
import type { MessagePort } from 'node:worker_threads';
import { AddressSet } from '#addresses/address-map.js';
import { limitedPart } from '#addresses/ip-address.js';
import type { ServicePlaneSettings } from '#contracts/config/config-reload.js';
import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import type { Address, Packet } from '#contracts/policy/policy-model.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';
import type { SeenConnections } from '#contracts/service-plane/seen-connection.js';
import { deciderKey } from '#policy/model/rules/rule-names.js';
import type { InterceptCa } from '#service-plane/ca/intercept-ca.js';
import { Connection, type Plane } from '#service-plane/connection/connection.js';
import { ConnectionEvaluator } from '#service-plane/connection/connection-evaluator.js';
import { Listener } from '#service-plane/connection/listener.js';
import { SeenConnectionRecorder } from '#service-plane/connection/seen-connections.js';
import type { Splices } from '#service-plane/connection/splices.js';
import { Interceptor } from '#service-plane/intercept/interceptor.js';
import type { OverflowReason } from '#service-plane/refused-reason.js';
import { Counts } from '#service-plane/service-plane-counts.js';
import type { ServicePlaneOptions } from '#service-plane/service-plane-options.js';
import { SourceCounts } from '#sockets/listening/connection-limit.js';
import { descriptorOf, isReserved } from '#sockets/listening/descriptor-reserve.js';
import { destroyWithReset } from '#sockets/socket-options.js';
import { DecidedHits } from '#threads/decided-hits.js';
import type { ThreadStats } from './service-plane-messages.js';

/**
 * In audit mode, connections above the limit pass uninspected, up to this multiple of the limit. Above the
 * multiple, the service plane resets further connections in every mode, because each connection needs
 * descriptors.
 */
const WITH_UNREAD = 2;

/**
 * The service plane (TLS and HTTP inspection) of one thread. All work of this class runs in the thread that
 * creates the object.
 */
export class LocalServicePlane {
  readonly #plane: Plane;
  readonly #listener: Listener;
  readonly #connections = new Set<Connection>();
  readonly #ofSource = new SourceCounts<Address>();
  readonly #seen = new SeenConnectionRecorder();
  readonly #hits = new DecidedHits(deciderKey);
  /** The function that begins to accept the connections that wait in the socket; null after its call. */
  #begin: (() => void) | null = null;
  /** The longest time for which connections wait for `setGrantPort`, in milliseconds. */
  #waitMs = 0;
  /** Resolves when the last `use` has decided all open connections again. */
  #decided: Promise<unknown> = Promise.resolve();
  /**
   * The options in force. The parts of the service plane (TLS and HTTP inspection) share this object and read
   * it at each use.
   */
  readonly #options: { -readonly [Name in keyof ServicePlaneOptions]: ServicePlaneOptions[Name] };

  constructor(given: ServicePlaneOptions, ticketKeys: Buffer, splices: Splices) {
    const options = { ...given };
    this.#options = options;
    const evaluator = new ConnectionEvaluator();
    const counts = new Counts();
    const common: Omit<Plane, 'interceptor'> = {
      options,
      evaluator,
      counts,
      hits: this.#hits,
      tells: (verdict) => verdict !== 'allow' || this.#seen.allowedWanted,
      see: (seen) => this.#seen.add(seen, Date.now()),
      splices,
    };
    this.#plane = { ...common, interceptor: new Interceptor(common, ticketKeys) };
    this.#listener = new Listener(options, (client, flow) => this.#accept(client, flow));
  }

  /**
   * Accepts connections on the listening sockets `fds`. With `waitMs`, connections wait in the sockets until
   * `setGrantPort` or `accept`, for at most this number of milliseconds.
   */
  async open(fds: readonly number[], waitMs = 0): Promise<void> {
    this.#waitMs = waitMs;
    if (waitMs === 0) return this.#listener.open(fds);
    const late = setTimeout(() => this.#begin?.(), waitMs);
    this.#begin = () => {
      clearTimeout(late);
      this.#begin = null;
      void this.#listener.open(fds);
    };
  }

  /**
   * Begins to accept connections by this policy before `setGrantPort` is called. Only decisions that need
   * grants then wait for `setGrantPort`. Does nothing if no connections wait in the socket.
   */
  accept(image: InspectionImage): void {
    if (this.#begin === null) return;
    this.#plane.evaluator.use(image);
    this.#plane.evaluator.awaitGrants(this.#waitMs);
    this.#begin();
  }

  /**
   * Changes the settings. @throws Error if the CA certificates cannot be read; no setting is changed then.
   */
  change({ upstreamCa, deniedHttp, maxConnections, maxConnectionsPerSource }: ServicePlaneSettings): void {
    if (upstreamCa !== this.#options.upstreamCa) this.#plane.interceptor.useUpstreamCa(upstreamCa);
    Object.assign(this.#options, { upstreamCa, deniedHttp, maxConnections, maxConnectionsPerSource });
  }

  use(image: InspectionImage): void {
    this.#plane.evaluator.use(image);
    this.#decided = Promise.all([...this.#connections].map((connection) => connection.decideAgain()));
  }

  /** Resolves when all open connections are decided by the policy of the last `use`. */
  async decided(): Promise<void> {
    await this.#decided;
  }

  /**
   * Changes which Kubernetes objects own source addresses, and evaluates the connections of these sources
   * again (D38a).
   */
  changeMembers(change: MembershipChange): void {
    this.#plane.evaluator.changeMembers(change);
    const changed = new AddressSet(change.addresses);
    for (const connection of this.#connections) if (changed.has(connection.flow.source)) void connection.decideAgain();
  }

  replaceMembers(list: MemberList): void {
    this.#plane.evaluator.replaceMembers(list);
    for (const connection of this.#connections) void connection.decideAgain();
  }

  useCa(ca: InterceptCa | null): void {
    this.#plane.interceptor.useCa(ca);
  }

  setGrantPort(port: MessagePort): void {
    this.#plane.evaluator.setGrantPort(port);
    this.#hits.sendBy(port);
    this.#begin?.();
  }

  /**
   * Sends to the datapath thread how many connections and requests each rule or default has decided since
   * the last call. Call this method a few times a second.
   */
  sendHits(): void {
    this.#hits.send();
  }

  get upstreamCaFault(): string | null {
    return this.#plane.interceptor.upstreamCaFault;
  }

  spliceBy(point: SpliceOffload): void {
    this.#plane.splices.spliceBy(point);
  }

  stats(): ThreadStats {
    return this.#plane.counts.stats(this.#connections.size, this.upstreamCaFault);
  }

  /** Sets whether the service plane also reports allowed connections and requests. */
  setAllowedWanted(wanted: boolean): void {
    this.#seen.allowedWanted = wanted;
  }

  drainSeen(): SeenConnections {
    return this.#seen.drain();
  }

  async close(): Promise<void> {
    this.#begin = null;
    const closed = this.#listener.close();
    for (const connection of this.#connections) connection.cut();
    this.#plane.interceptor.close();
    this.sendHits();
    await closed;
  }

  #accept(client: Socket, flow: Packet): void {
    this.#makeRoom(flow.source);
    const unread = this.#overflow(flow.source, 1);
    const refused = isReserved(descriptorOf(client), 'connection')
      ? 'too_many_connections'
      : this.#overflow(flow.source, WITH_UNREAD);
    if (refused !== null) {
      this.#plane.counts.refuse(refused);
      destroyWithReset(client);
      return;
    }
    const connection = new Connection(this.#plane, client, flow, (over) => {
      this.#connections.delete(over);
      this.#ofSource.remove(limitedPart(flow.source));
    });
    this.#connections.add(connection);
    this.#ofSource.add(limitedPart(flow.source));
    void (unread === null ? connection.begin() : connection.beginUnread(unread));
  }

  /**
   * If a limit of open connections is reached, cuts a suspended connection (denied by a later policy) that
   * counts for this limit.
   */
  #makeRoom(source: Address): void {
    if (this.#plane.counts.suspended === 0) return;
    const reason = this.#overflow(source, 1);
    if (reason === null) return;
    const isOfSource = reason === 'too_many_connections_of_source';
    for (const connection of this.#connections) {
      if (!connection.isSuspended || (isOfSource && limitedPart(connection.flow.source) !== limitedPart(source)))
        continue;
      connection.cut();
      return;
    }
  }

  /**
   * Returns which limit of open connections is reached (per source, or in total), after both limits are
   * multiplied by `times`; null if neither is reached.
   */
  #overflow(source: Address, times: number): OverflowReason | null {
    const { maxConnections, maxConnectionsPerSource } = this.#options;
    if (this.#ofSource.of(limitedPart(source)) >= maxConnectionsPerSource * times)
      return 'too_many_connections_of_source';
    return this.#connections.size >= maxConnections * times ? 'too_many_connections' : null;
  }
}
