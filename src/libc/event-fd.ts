import { check, libc } from './libc.js';

const EFD_CLOEXEC = 0x80000;

/**
 * An eventfd, with which one thread wakes another. The first call of `signal` makes its descriptor readable.
 * The descriptor stays readable, because this class does not reset the counter of the eventfd.
 */
export class EventFd {
  constructor(readonly fd: number = check('make eventfd', libc.eventfd(0, EFD_CLOEXEC))) {}

  signal(): void {
    const one = new Uint8Array(BigUint64Array.of(1n).buffer);
    check('write eventfd', libc.write(this.fd, one, one.length));
  }

  close(): void {
    libc.close(this.fd);
  }
}
