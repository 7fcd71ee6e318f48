import type { Socket } from 'node:net';
import type { MessagePort } from 'node:worker_threads';
import type { SpliceOffload } from '#contracts/splice-offload.js';
import { descriptorOf } from '#sockets/descriptor-reserve.js';
import type { Handover } from '#sockets/handover.js';
import type { SpliceOrder } from './service-plane-messages.js';

/** Not in the types. */
type Handled = Socket & { readonly _handle: { readStop(): void } | null };

/** Hands pairs of sockets to the thread that carries their bytes. */
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
   * Carries the bytes of two sockets to each other, each side's end by itself; what breaks one breaks the other. Node has them no
   * more once what it was given to write is written. `done` is told when both are over; what is returned resets both.
   */
  splice(one: Socket, other: Socket, done: () => void): () => void {
    const id = this.#nextId();
    this.#ends.set(id, done);
    passOn(one, other);
    passOn(other, one);
    whenWritten(one, () => whenWritten(other, () => this.#handOver(id, one, other)));
    return () => {
      if (this.#ends.delete(id)) this.#order({ id, pair: null });
    };
  }

  /** From now on what it carries may be left to the datapath. */
  joinBy(point: SpliceOffload): void {
    this.#order({ joinBy: point });
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
      // It closes its descriptor at once, and the connection stays open by the other one.
      socket.destroy();
    }
    this.#order({ id, pair: taken as [number, number] });
  }

  #giveUp(id: number, one: Socket, other: Socket): void {
    one.resetAndDestroy();
    other.resetAndDestroy();
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
      this.handover.ring();
    });
  }

  #nextId(): number {
    do this.#lastId = (this.#lastId + 1) >>> 0;
    while (this.#lastId === 0 || this.#ends.has(this.#lastId));
    return this.#lastId;
  }
}

/** What Node has read already; it reads no more. */
function passOn(from: Socket, to: Socket): void {
  for (let chunk = from.read() as Buffer | null; chunk !== null; chunk = from.read() as Buffer | null) to.write(chunk);
  (from as Handled)._handle?.readStop();
}

function whenWritten(socket: Socket, then: () => void): void {
  if (socket.writableLength === 0) then();
  else socket.write('', then);
}
