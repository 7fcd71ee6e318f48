import { MessageChannel, type MessagePort } from 'node:worker_threads';
import type { ServicePlaneSettings } from '#contracts/config/config-reload.js';
import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import type { SeenConnections } from '#contracts/service-plane/seen-connection.js';
import { Handover } from '#sockets/listening/handover.js';
import { type OwnSpliceOffload, ownSpliceOffload, resetLeft } from '#splicing/offloader.js';
import { WorkerClient } from '#threads/worker-client.js';
import type {
  FromPlaneThread,
  FromSplicer,
  PlaneRequests,
  PlaneWorkerData,
  SplicerWorkerData,
  ThreadNumber,
  ThreadStats,
  ToPlaneThread,
} from './service-plane-messages.js';

const SIGNAL_MS = 5;

type Listener = {
  readonly onSeen: (seen: SeenConnections) => void;
  /** Called when `upstreamCaFault` or `spliceFault` of the thread has changed. */
  readonly onFault: () => void;
  /** Called when the service-plane thread or its splice thread ends without a call of `end`. */
  readonly onDeath: (reason: string) => void;
};

/**
 * One thread of the service plane (TLS and HTTP inspection), together with the splice thread that forwards
 * its decided connections.
 */
export class PlaneThread {
  readonly #thread: WorkerClient<PlaneRequests, ToPlaneThread, FromPlaneThread>;
  readonly #splicer: WorkerClient<object, never, FromSplicer>;
  readonly #handover = new Handover();
  #stopped: Promise<void> | null = null;
  /**
   * The BPF objects of the splicing offload, with descriptors that this `PlaneThread` owns. When the node
   * stops, the datapath closes its own descriptors before `#resetOffloaded` resets the offloaded connections.
   */
  #point: OwnSpliceOffload | null = null;
  /** Why the thread cannot read the trusted CA certificates for servers (`upstream_ca`); null: no fault. */
  upstreamCaFault: string | null = null;
  /** Why the thread cannot offload connections to the datapath; null: no fault. */
  spliceFault: string | null = null;

  constructor(
    given: Omit<PlaneWorkerData, 'splices'>,
    private readonly number: ThreadNumber,
    private readonly listener: Listener,
  ) {
    const { port1, port2 } = new MessageChannel();
    const handover = this.#handover.shared;
    const died = (reason: string): void => this.#died(reason);
    this.#thread = new WorkerClient(
      {
        entry: 'node/service-plane.worker.cjs',
        name: 'a thread of the service plane',
        workerData: { ...given, splices: { port: port1, handover, thread: number } } satisfies PlaneWorkerData,
        transferList: [port1],
      },
      { received: (message) => this.#handle(message), failed: died },
    );
    this.#splicer = new WorkerClient(
      {
        entry: 'node/splice.worker.cjs',
        name: 'a splicing thread',
        workerData: { port: port2, handover, thread: number } satisfies SplicerWorkerData,
        transferList: [port2],
      },
      {
        received: ({ spliceFault }) => {
          this.spliceFault = spliceFault;
          this.listener.onFault();
        },
        failed: died,
      },
    );
  }

  /** True after `end` was called or a thread ended unexpectedly. */
  get isOver(): boolean {
    return this.#stopped !== null;
  }

  tell(message: ToPlaneThread, transferred: readonly MessagePort[] = []): void {
    this.#thread.send(message, transferred);
  }

  open = (fds: readonly number[], waitMs: number): Promise<void> => this.#thread.request('open', [fds, waitMs]);
  change = (settings: ServicePlaneSettings): Promise<void> => this.#thread.request('change', [settings]);
  /**
   * Sends a change of the members (addresses that Kubernetes objects own). If the thread ends before its
   * reply, the next thread gets all members at its start.
   */
  changeMembers = (change: MembershipChange): Promise<void> =>
    this.#unlessOver(this.#thread.request('changeMembers', [change]));
  replaceMembers = (list: MemberList): Promise<void> =>
    this.#unlessOver(this.#thread.request('replaceMembers', [list]));
  decided = (): Promise<void> => this.#thread.request('decided', []);
  close = (): Promise<void> => this.#thread.request('close', []);
  stats = (): Promise<ThreadStats> => this.#thread.request('stats', []);

  spliceBy(point: SpliceOffload): void {
    this.#point?.close();
    try {
      this.#point = ownSpliceOffload(point);
    } catch {
      // The datapath has ended and closed its descriptors. The next datapath provides new ones.
      this.#point = null;
    }
    this.tell({ kind: 'set_splice_offload', point });
  }

  async #unlessOver(done: Promise<void>): Promise<void> {
    try {
      await done;
    } catch (failure) {
      if (!this.#thread.isOver) throw failure;
    }
  }

  #resetOffloaded(): void {
    try {
      if (this.#point !== null) resetLeft(this.#point.point, this.number.number);
    } catch {
      // `resetLeft` fails if the datapath that forwarded the connections has ended. There is then nothing to
      // reset.
    }
    this.#point?.close();
    this.#point = null;
  }

  /** Ends the service-plane thread and its splice thread, because neither thread works without the other. */
  end(reason = 'the service plane was closed'): Promise<void> {
    this.#stopped ??= (async () => {
      const stopped = [this.#thread.end(reason), this.#splicer.end(reason)];
      // The splice thread detects its termination only when it stops waiting. A single signal could arrive
      // before the termination takes effect, and the thread would wait again. So signal repeatedly.
      const signalling = setInterval(() => this.#handover.signal(), SIGNAL_MS);
      await Promise.all(stopped);
      clearInterval(signalling);
      // Reset the offloaded connections before `Handover.close` resets the sockets. As long as the datapath
      // handles the packets of a connection, a reset from its socket does not leave the node.
      this.#resetOffloaded();
      this.#handover.close();
    })();
    return this.#stopped;
  }

  #handle(message: FromPlaneThread): void {
    if (message.kind === 'seen') {
      this.listener.onSeen(message.seen);
      return;
    }
    this.upstreamCaFault = message.fault;
    this.listener.onFault();
  }

  #died(reason: string): void {
    if (this.isOver) return;
    void this.end(reason);
    this.listener.onDeath(reason);
  }
}
