import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '#cli/tour/topology.js';
import { check, errorName, libc } from '#libc/libc.js';
import { addressOf, bindLibrary } from '#libc/library.js';
import { AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK } from '#libc/socket-numbers.js';

const MSG_CMSG_CLOEXEC = 0x4000_0000;
const POLL_MS = 5;
/** The sizes of struct msghdr, struct iovec, the buffer for control messages, and the buffer for the text. */
const [HEADER, VECTOR, CONTROL, TEXT] = [56, 16, 64, 4_096];

const receiving = bindLibrary<{ recvmsg(fd: number, message: Uint8Array, flags: number): number }>(null, {
  recvmsg: 'long recvmsg(int fd, _Inout_ void *message, int flags)',
});

/**
 * A service manager as systemd is one: it reads the messages of sd_notify(3), and keeps the descriptors that
 * a service stores.
 */
export class FakeServiceManager {
  readonly stored = new Map<string, number>();
  /** The first lines of all messages, such as `READY=1`. */
  readonly messages: string[] = [];
  readonly #socket: number;
  readonly #polling: NodeJS.Timeout;

  private constructor(private readonly folder: string) {
    this.#socket = check('open a socket', libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const path = Buffer.from(`\u0001\u0000${this.socketPath}\u0000`);
    check('bind a socket', libc.bind(this.#socket, path, path.length));
    this.#polling = setInterval(() => this.#read(), POLL_MS);
  }

  static async start(): Promise<FakeServiceManager> {
    return new FakeServiceManager(await temporaryFolder('manager'));
  }

  get socketPath(): string {
    return join(this.folder, 'notify');
  }

  /** Closes the stored descriptors, as systemd does when it stops a service. */
  forget(): void {
    for (const name of this.stored.keys()) this.#remove(name);
  }

  async close(): Promise<void> {
    clearInterval(this.#polling);
    libc.close(this.#socket);
    this.forget();
    await rm(this.folder, { recursive: true });
  }

  #read(): void {
    for (;;) {
      const memory = new ArrayBuffer(HEADER + VECTOR + CONTROL + TEXT);
      const view = new DataView(memory);
      const at = addressOf(new Uint8Array(memory));
      const [vector, control, text] = [HEADER, HEADER + VECTOR, HEADER + VECTOR + CONTROL];
      view.setBigUint64(16, at + BigInt(vector), true);
      view.setBigUint64(24, 1n, true);
      view.setBigUint64(32, at + BigInt(control), true);
      view.setBigUint64(40, BigInt(CONTROL), true);
      view.setBigUint64(vector, at + BigInt(text), true);
      view.setBigUint64(vector + 8, BigInt(TEXT), true);
      const length = receiving.recvmsg(this.#socket, new Uint8Array(memory, 0, HEADER), MSG_CMSG_CLOEXEC);
      if (length < 0 && errorName() === 'EAGAIN') return;
      check('receive a message', length);
      const hasDescriptor = view.getBigUint64(40, true) > 0n;
      this.#take(
        Buffer.from(memory, text, length).toString(),
        hasDescriptor ? view.getInt32(control + 16, true) : null,
      );
    }
  }

  #take(text: string, fd: number | null): void {
    const fields = new Map(text.split('\n').map((line) => line.split('=', 2) as [string, string]));
    const name = fields.get('FDNAME') ?? '';
    this.messages.push(text.split('\n')[0] ?? '');
    if (fields.has('FDSTOREREMOVE')) this.#remove(name);
    else if (fields.has('FDSTORE') && fd !== null) this.stored.set(name, fd);
  }

  #remove(name: string): void {
    const fd = this.stored.get(name);
    this.stored.delete(name);
    if (fd !== undefined) libc.close(fd);
  }
}
