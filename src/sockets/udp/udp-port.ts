import { itemAt } from '#arrays/read.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { errorName, libc } from '#libc/libc.js';
import { MSG_DONTWAIT } from '#libc/socket-numbers.js';
import { BATCH, type BatchMemory, SLOT_BYTES } from './batch-memory.js';
import type { Pump, Sender } from './pump.js';

/**
 * The maximum number of batches that one socket receives in one pump iteration. After that, the pump
 * continues with the other sockets.
 */
const BATCHES_OF_A_TURN = 4;

type Sending = {
  readonly bytes: Uint8Array;
  readonly address: Address;
  readonly port: number;
  readonly from: Address;
};
export type UdpHandlers = {
  /**
   * Receives a datagram. `bytes` are valid only during the call. `address` and `port` are those of the
   * sender. `to` is the destination address; 0 if the socket is not transparent. Addresses are in host byte
   * order.
   */
  readonly onDatagram: (bytes: Uint8Array, address: Address, port: number, to: Address) => void;
  /**
   * Receives the name of an error, for example after an ICMP error on a connected socket. The name is
   * EMSGSIZE for a received datagram longer than `SLOT_BYTES`.
   */
  readonly onError: (code: string) => void;
};

/**
 * A UDP socket that receives and sends datagrams in batches, at each pump iteration. Node's own UDP socket
 * makes one system call and several calls into JavaScript for each datagram.
 */
export class UdpPort implements Sender {
  readonly fd: number;
  #sending: Sending[] = [];
  #isClosed = false;

  constructor(
    private readonly pump: Pump,
    /** The descriptor of a socket, which the port owns from now on. */
    fd: number,
    private readonly handlers: UdpHandlers,
  ) {
    this.fd = fd;
    try {
      pump.add(this);
    } catch (failure) {
      libc.close(this.fd);
      throw failure;
    }
  }

  /**
   * Queues a datagram, which the pump sends at the end of its iteration. Without `address`, the kernel sends
   * the datagram to the connected peer. `from` is the source address, for a transparent socket only.
   */
  send(bytes: Uint8Array, address: Address = 0, port = 0, from: Address = 0): void {
    if (this.#isClosed) return;
    if (this.#sending.length === 0) this.pump.hasToSend(this);
    this.#sending.push({ bytes, address, port, from });
  }

  /**
   * Receives waiting datagrams, at most `BATCHES_OF_A_TURN` batches, and calls a handler for each datagram.
   */
  receive(memory: BatchMemory): void {
    for (let batch = 0; batch < BATCHES_OF_A_TURN && !this.#isClosed; batch++) {
      memory.readyToReceive(BATCH);
      const count = libc.recvmmsg(this.fd, memory.headers, BATCH, MSG_DONTWAIT, null);
      if (count < 0) {
        const code = errorName();
        if (code !== 'EAGAIN' && code !== 'EINTR') this.handlers.onError(code);
        return;
      }
      for (let slot = 0; slot < count; slot++) {
        const bytes = memory.received(slot);
        if (bytes === null) this.handlers.onError('EMSGSIZE');
        else this.handlers.onDatagram(bytes, memory.address(slot), memory.port(slot), memory.destination(slot));
      }
      if (count < BATCH) return;
    }
  }

  /**
   * Sends the queued datagrams. Returns the number of datagrams that the kernel did not send; this function
   * does not try these datagrams again.
   */
  flush(memory: BatchMemory): number {
    const all = this.#sending;
    this.#sending = [];
    if (this.#isClosed) return 0;
    let lost = 0;
    // An error handler may close this socket. The number of the closed descriptor may then belong to another
    // owner, so the loop must stop.
    for (let from = 0; from < all.length && !this.#isClosed; ) {
      const count = Math.min(BATCH, all.length - from);
      for (let slot = 0; slot < count; slot++) {
        const { bytes, address, port, from: as } = itemAt(all, from + slot);
        memory.toSend(slot, bytes.length > SLOT_BYTES ? bytes.subarray(0, SLOT_BYTES) : bytes, address, port, as);
      }
      const sent = libc.sendmmsg(this.fd, memory.headers, count, MSG_DONTWAIT);
      if (sent > 0) from += sent;
      else {
        // An error of `sendmmsg` concerns only the first datagram of the batch, so the loop skips this
        // datagram.
        if (errorName() !== 'EAGAIN') this.handlers.onError(errorName());
        lost++;
        from++;
      }
    }
    return lost;
  }

  /** Stops receiving. Datagrams wait in the socket, and the port can still send. */
  pause(): void {
    if (!this.#isClosed) this.pump.remove(this);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.pump.remove(this);
    libc.close(this.fd);
  }
}
