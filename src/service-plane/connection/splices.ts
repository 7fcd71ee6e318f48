import type { Socket } from 'node:net';
import type { MessagePort } from 'node:worker_threads';
import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import type { SpliceOrder } from '#service-plane/thread/service-plane-messages.js';
import { descriptorOf } from '#sockets/listening/descriptor-reserve.js';
import type { Handover } from '#sockets/listening/handover.js';
import { destroyWithReset } from '#sockets/socket-options.js';

/** A socket with the field `_handle`, which Node's type definitions lack. */
type Handled = Socket & { readonly _handle: { readStop(): void } | null };

/** A connection that the splice thread forwards. */
export type Spliced = {
  /** Resets both sockets, without a call of `done`. */
  cut(): void;
  /**
   * With true, no more bytes pass, and the connection stays open until one of its ends closes it. With
   * false, bytes pass again.
   */
  setSuspended(suspended: boolean): void;
};

/** Hands pairs of sockets over from Node to the splice thread, which forwards their bytes by splice(2). */
export class Splices {
  readonly #ends = new Map<number, () => void>();
  #orders: SpliceOrder[] = [];
  #lastId = 0;

  constructor(
    private readonly port: MessagePort,
    private readonly handover: Handover,
  ) {
    port.on('message', (ended: readonly number[]) => {
      for (const id of ended) this.#end(id);
    });
    port.unref();
  }

  /**
   * Splices two sockets. When one direction ends, the other direction continues; an error of one socket
   * resets both sockets. Node closes its descriptors after all data that was written to the sockets is sent.
   * Calls `done` when both directions have ended.
   */
  splice(one: Socket, other: Socket, done: () => void): Spliced {
    const id = this.#nextId();
    this.#ends.set(id, done);
    passOn(one, other);
    passOn(other, one);
    whenWritten(one, () => whenWritten(other, () => this.#handOver(id, one, other)));
    return {
      cut: () => {
        if (this.#ends.delete(id)) this.#order({ id, pair: null });
      },
      setSuspended: (suspended) => {
        if (this.#ends.has(id)) this.#order({ id, suspended });
      },
    };
  }

  /**
   * Allows the splice thread to offload spliced connections from now on: the datapath then forwards their
   * packets.
   */
  spliceBy(point: SpliceOffload): void {
    this.#order({ spliceBy: point });
  }

  #handOver(id: number, one: Socket, other: Socket): void {
    if (!this.#ends.has(id)) return;
    const fds = [one, other].map((socket) => descriptorOf(socket));
    if (fds.some((fd) => fd < 0)) {
      this.#giveUp(id, one, other);
      return;
    }
    const taken: number[] = [];
    try {
      for (const fd of fds) taken.push(this.handover.take(fd));
    } catch {
      for (const fd of taken) this.handover.drop(fd);
      this.#giveUp(id, one, other);
      return;
    }
    for (const socket of [one, other]) {
      socket.removeAllListeners();
      socket.on('error', () => {});
      // `destroy` immediately closes Node's descriptor. The connection stays open, because the splice thread
      // has a duplicate of the descriptor.
      socket.destroy();
    }
    this.#order({ id, pair: taken as [number, number] });
  }

  #giveUp(id: number, one: Socket, other: Socket): void {
    destroyWithReset(one);
    destroyWithReset(other);
    this.#end(id);
  }

  #end(id: number): void {
    const done = this.#ends.get(id);
    this.#ends.delete(id);
    done?.();
  }

  #order(order: SpliceOrder): void {
    if (this.#orders.push(order) > 1) return;
    setImmediate(() => {
      const orders = this.#orders;
      this.#orders = [];
      this.port.postMessage(orders);
      this.handover.signal();
    });
  }

  #nextId(): number {
    do this.#lastId = (this.#lastId + 1) >>> 0;
    while (this.#lastId === 0 || this.#ends.has(this.#lastId));
    return this.#lastId;
  }
}

/**
 * Writes the data that Node has already read from `from` to `to`, and makes Node read no more data from
 * `from`.
 */
function passOn(from: Socket, to: Socket): void {
  for (let chunk = from.read() as Buffer | null; chunk !== null; chunk = from.read() as Buffer | null) to.write(chunk);
  (from as Handled)._handle?.readStop();
}

function whenWritten(socket: Socket, then: () => void): void {
  if (socket.writableLength === 0) then();
  else socket.write('', then);
}
