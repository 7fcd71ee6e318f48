import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import { takeObject } from '#libc/bpf/object-handle.js';
import type { Descriptors } from '#libc/descriptors.js';
import { libc } from '#libc/libc.js';
import { type Capability, lacking } from '#libc/proc/capabilities.js';
import { OffloadedConnection, type SocketPair, type SpliceMeans, takeAndReset } from './offloaded-connection.js';
import { RawSocket } from './raw-socket.js';
import { SpliceTable } from './table.js';

/**
 * The time in nanoseconds for which a call of `renew` permits the datapath to forward offloaded connections.
 * If the process ends, the datapath stops forwarding after this time.
 */
const RENEWAL_NS = 5_000_000_000n;
/** `check` checks each offloaded connection once in this many calls. */
const ROUNDS = 10;

/**
 * The capabilities that the process needs to run the BPF program `weir_join`, and to send segments with
 * source addresses of other hosts.
 */
const NEEDED: readonly Capability[] = ['CAP_NET_ADMIN', 'CAP_NET_RAW'];

export function offloadFaultOf(failure: unknown): string {
  const lacked = lacking(NEEDED);
  if (lacked.length > 0) return `${lacked.join(' and ')} missing`;
  return failure instanceof Error ? failure.message : String(failure);
}

/**
 * Offloads spliced connections to the datapath: the datapath then forwards the packets, and the process has
 * no sockets for the connection. Also checks which offloaded connections have ended. If there are several
 * offloaders, each has a different number.
 */
export class SpliceOffloader {
  readonly #means: SpliceMeans;
  readonly #offloaded = new Map<number, OffloadedConnection>();
  #round = 0;

  /**
   * Resets the connections that earlier offloaders left in the datapath: those with this `number`, and those
   * with a number of at least `count`, because no present offloader has such a number. Throws if the
   * datapath has closed its BPF objects.
   */
  constructor(
    point: SpliceOffload,
    { number, count }: { readonly number: number; readonly count: number },
    held: Descriptors,
  ) {
    const { idleMs, endedMs } = point;
    this.#means = { ...meansOf(point, held), offloader: number, idleMs, endedMs };
    resetAll(this.#means, (offloader) => offloader === number || offloader >= count);
    this.renew();
  }

  begin(id: number, pair: SocketPair): OffloadedConnection | null {
    return OffloadedConnection.begin(this.#means, id, pair);
  }

  add(id: number, connection: OffloadedConnection): void {
    this.#offloaded.set(id, connection);
  }

  cut(id: number): void {
    this.#offloaded.get(id)?.cut();
    this.#offloaded.delete(id);
  }

  setSuspended(id: number, suspended: boolean): void {
    this.#offloaded.get(id)?.setSuspended(suspended);
  }

  renew(): void {
    this.#means.table.renew(this.#means.offloader, process.hrtime.bigint() + RENEWAL_NS);
  }

  /**
   * Renews the permission to forward, checks a tenth of the offloaded connections, and returns the ids of
   * the ended connections. Call this about once a second.
   */
  check(): readonly number[] {
    this.renew();
    this.#round = (this.#round + 1) % ROUNDS;
    const over: number[] = [];
    for (const [id, connection] of this.#offloaded) {
      if (id % ROUNDS !== this.#round || !connection.isOver()) continue;
      this.#offloaded.delete(id);
      over.push(id);
    }
    return over;
  }

  /** Resets all offloaded connections, and returns the ids of these connections. */
  close(): readonly number[] {
    const ids = [...this.#offloaded.keys()];
    for (const id of ids) this.cut(id);
    this.#means.table.close();
    this.#means.raw.close();
    return ids;
  }
}

/**
 * The BPF objects of the splicing offload with duplicated descriptors. The duplicates stay valid after the
 * datapath has closed its descriptors.
 */
export type OwnSpliceOffload = { readonly point: SpliceOffload; close(): void };

/** Duplicates the descriptors of `point`. Throws if the datapath has already closed its descriptors. */
export function ownSpliceOffload(point: SpliceOffload): OwnSpliceOffload {
  const fds: number[] = [];
  const own = ({ fd, id }: SpliceOffload['program']): SpliceOffload['program'] => {
    const taken = takeObject('take over the splice offload', { fd, id });
    fds.push(taken);
    return { fd: taken, id };
  };
  const close = (): void => {
    for (const fd of fds) libc.close(fd);
  };
  try {
    return {
      point: {
        ...point,
        program: own(point.program),
        spliceMap: own(point.spliceMap),
        offloaderMap: own(point.offloaderMap),
      },
      close,
    };
  } catch (failure) {
    close();
    throw failure;
  }
}

/** Resets the connections in the datapath that belonged to the offloader `number`, which has ended. */
export function resetLeft(point: SpliceOffload, number: number): void {
  const means = meansOf(point);
  try {
    // With the deadline 0, the datapath forwards no connection of the ended offloader any more.
    means.table.renew(number, 0n);
    resetAll(means, (offloader) => offloader === number);
  } finally {
    means.table.close();
    means.raw.close();
  }
}

function meansOf(point: SpliceOffload, held?: Descriptors): Pick<SpliceMeans, 'table' | 'raw'> {
  const table = new SpliceTable(point, held);
  try {
    return { table, raw: new RawSocket(point.mark, held) };
  } catch (failure) {
    table.close();
    throw failure;
  }
}

function resetAll(means: Pick<SpliceMeans, 'table' | 'raw'>, isTheirs: (offloader: number) => boolean): void {
  // The BPF map has an entry for each direction of a connection. At the first direction, `takeAndReset`
  // removes both entries. At the second direction, it finds no entry and does nothing.
  for (const [ends] of means.table.allOf(isTheirs)) takeAndReset(means, ends);
}
