import type { Descriptors } from '#libc/descriptors.js';
import { check, libc } from '#libc/libc.js';
import {
  AF_INET,
  IPPROTO_RAW,
  MSG_DONTWAIT,
  SO_MARK,
  SOCK_CLOEXEC,
  SOCK_RAW,
  SOL_SOCKET,
} from '#libc/socket-numbers.js';
import { sockaddr } from '#sockets/socket-options.js';
import { segmentBytes, type TcpSegment } from './tcp-segment.js';

/** A raw socket that can send TCP segments with source addresses of other hosts. */
export class RawSocket {
  readonly #fd: number;

  /**
   * `held` records the descriptor of the socket, so that another thread can close the descriptor if the
   * calling thread ends unexpectedly.
   */
  constructor(
    mark: number,
    private readonly held?: Descriptors,
  ) {
    this.#fd = check('open a raw socket', libc.socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
    held?.hold(this.#fd);
    try {
      check('mark a socket', libc.setsockopt(this.#fd, SOL_SOCKET, SO_MARK, Uint32Array.of(mark), 4));
    } catch (failure) {
      this.close();
      throw failure;
    }
  }

  /**
   * Sends a segment once, without a retry. If the kernel cannot send the segment, the effect is the same as a
   * packet loss on the network.
   */
  send(segment: TcpSegment): void {
    const bytes = segmentBytes(segment);
    const to = sockaddr(segment.destination, 0);
    libc.sendto(this.#fd, bytes, bytes.length, MSG_DONTWAIT, to, to.length);
  }

  close(): void {
    this.held?.release(this.#fd);
    libc.close(this.#fd);
  }
}
