import type { SpliceOffload } from '#contracts/splice-offload.js';
import { type Capability, lacking } from '#libc/capabilities.js';
import { libc } from '#libc/libc.js';
import { takeObject } from '#libc/object-handle.js';
import type { Descriptors } from './descriptors.js';
import { RawSocket } from './raw-socket.js';
import { type Pair, type SpliceMeans, SplicePair, takeAndReset } from './splice-pair.js';
import { SpliceTable } from './splice-table.js';

/** For how long the datapath forwards spliced connections after the last renewal. */
const RENEWAL_NS = 5_000_000_000n;
/** All spliced connections are checked once in this many rounds. */
const ROUNDS = 10;

/** The capabilities to run the splice program, and to send segments with source addresses of other hosts. */
const NEEDED: readonly Capability[] = ['CAP_NET_ADMIN', 'CAP_NET_RAW'];

/** Returns why connections cannot be offloaded to the datapath. */
export function offloadFaultOf(failure: unknown): string {
  const lacked = lacking(NEEDED);
  if (lacked.length > 0) return `${lacked.join(' and ')} missing`;
  return failure instanceof Error ? failure.message : String(failure);
}

/**
 * Offloads connections to the datapath, and checks those that it forwards. Each of several offloaders has its
 * own number.
 */
export class SpliceOffloader {
  readonly #means: SpliceMeans;
  readonly #joined = new Map<number, SplicePair>();
  #round = 0;

  /**
   * Resets the connections of ended offloaders: those of this number, and of numbers that are no longer in
   * use. Throws if the datapath is gone.
   */
  constructor(
    point: SpliceOffload,
    { number, count }: { readonly number: number; readonly count: number },
    held: Descriptors,
  ) {
    const { idleMs, endedMs } = point;
    this.#means = { ...meansOf(point, held), joiner: number, idleMs, endedMs };
    resetAll(this.#means, (joiner) => joiner === number || joiner >= count);
    this.renew();
  }

  begin(id: number, pair: Pair): SplicePair | null {
    return SplicePair.begin(this.#means, id, pair);
  }

  keep(id: number, join: SplicePair): void {
    this.#joined.set(id, join);
  }

  cut(id: number): void {
    this.#joined.get(id)?.cut();
    this.#joined.delete(id);
  }

  renew(): void {
    this.#means.table.renew(this.#means.joiner, process.hrtime.bigint() + RENEWAL_NS);
  }

  /** Checks a part of the connections, and returns the ids of ended ones. To be called about every second. */
  look(): readonly number[] {
    this.renew();
    this.#round = (this.#round + 1) % ROUNDS;
    const over: number[] = [];
    for (const [id, join] of this.#joined) {
      if (id % ROUNDS !== this.#round || !join.isOver()) continue;
      this.#joined.delete(id);
      over.push(id);
    }
    return over;
  }

  /** Resets all connections, and returns their ids. */
  close(): readonly number[] {
    const ids = [...this.#joined.keys()];
    for (const id of ids) this.cut(id);
    this.#means.table.close();
    this.#means.raw.close();
    return ids;
  }
}

/** A splice offload with its own descriptors, which stay valid after the datapath is closed. */
export type OwnSpliceOffload = { readonly point: SpliceOffload; close(): void };

/** Throws if the datapath is gone. */
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
      point: { ...point, program: own(point.program), joins: own(point.joins), joiners: own(point.joiners) },
      close,
    };
  } catch (failure) {
    close();
    throw failure;
  }
}

/** Resets the connections of an offloader that has ended. */
export function resetLeft(point: SpliceOffload, number: number): void {
  const means = meansOf(point);
  try {
    // From here on, the datapath forwards none of its connections.
    means.table.renew(number, 0n);
    resetAll(means, (joiner) => joiner === number);
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

function resetAll(means: Pick<SpliceMeans, 'table' | 'raw'>, isTheirs: (joiner: number) => boolean): void {
  // Both directions are in the table; the first of them removes both.
  for (const [ends] of means.table.allOf(isTheirs)) takeAndReset(means, ends);
}
