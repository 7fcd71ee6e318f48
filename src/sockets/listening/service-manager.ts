import { check, libc } from '#libc/libc.js';
import { addressOf } from '#libc/library.js';
import { AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, SOL_SOCKET } from '#libc/socket-numbers.js';
import type { DescriptorStore } from './listening-sockets.js';

const SO_SNDTIMEO = 21;
const SCM_RIGHTS = 1;
const MSG_NOSIGNAL = 0x4000;
/** The longest time for which a full receive queue of the service manager delays a message, in seconds. */
const SEND_TIMEOUT_S = 1;
/**
 * Number of messages to the watchdog in each of its periods. With several messages, one late message does not
 * end the process.
 */
const MESSAGES_IN_PERIOD = 3;

/** The sizes of struct msghdr, struct iovec, and a control message with one descriptor, in bytes. */
const HEADER = 56;
const VECTOR = 16;
const CONTROL = 24;
const CONTROL_LENGTH = 20;

const FIRST_DESCRIPTOR = 3;

/**
 * Sends messages to the service manager, by the protocol of sd_notify(3). A message that cannot be sent is
 * reported, and has no other effect.
 */
export class ServiceManager implements DescriptorStore {
  /**
   * `socketPath` is the value of `NOTIFY_SOCKET`. A leading `@` is an abstract address. `watchdogMs` is the
   * time without a message after which the service manager kills the process; null if it has no watchdog.
   */
  constructor(
    private readonly socketPath: string,
    private readonly watchdogMs: number | null,
    private readonly failed: (failure: unknown) => void,
  ) {}

  /**
   * Tells the watchdog of the service manager that the event loop of this thread runs. The messages come from
   * a timer, so they stop while the event loop is blocked. Returns a function that stops the timer.
   */
  keepAlive(): () => void {
    if (this.watchdogMs === null) return () => {};
    const send = (): void => this.#send('WATCHDOG=1');
    send();
    const timer = setInterval(send, this.watchdogMs / MESSAGES_IN_PERIOD).unref();
    return () => clearInterval(timer);
  }

  /** Tells the service manager that the start has ended, and sets the status text. */
  ready(status: string): void {
    this.#send(`READY=1\nSTATUS=${status}`);
  }

  /** Sets the line that `systemctl status` shows, also during a start; an empty text removes it. */
  status(text: string): void {
    this.#send(`STATUS=${text}`);
  }

  stopping(): void {
    this.#send('STOPPING=1');
  }

  /** Stores a duplicate of a descriptor, also beyond the end of this process. */
  store(name: string, fd: number): void {
    // Without FDPOLL=0, the service manager drops a socket that has an error.
    this.#send(`FDSTORE=1\nFDNAME=${name}\nFDPOLL=0`, fd);
  }

  /** Removes all stored descriptors with this name. */
  remove(name: string): void {
    this.#send(`FDSTOREREMOVE=1\nFDNAME=${name}`);
  }

  #send(text: string, fd: number | null = null): void {
    let socket = -1;
    try {
      socket = check('open a socket', libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      const timeout = Uint32Array.of(SEND_TIMEOUT_S, 0, 0, 0);
      check(
        'limit the time of a message',
        libc.setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, timeout, timeout.byteLength),
      );
      const address = unixAddress(this.socketPath);
      check(`connect to ${this.socketPath}`, libc.connect(socket, address, address.length));
      const message = messageOf(Buffer.from(text), fd);
      check('send a message to the service manager', libc.sendmsg(socket, message, MSG_NOSIGNAL));
    } catch (failure) {
      this.failed(failure);
    } finally {
      if (socket >= 0) libc.close(socket);
    }
  }
}

function unixAddress(path: string): Uint8Array {
  const bytes = Buffer.alloc(2 + Buffer.byteLength(path) + (path.startsWith('@') ? 0 : 1));
  bytes.writeUInt16LE(AF_UNIX);
  bytes.write(path, 2);
  if (path.startsWith('@')) bytes[2] = 0;
  return bytes;
}

/** Returns a struct msghdr. Its pointers refer to bytes after it in the same ArrayBuffer. */
function messageOf(text: Uint8Array, fd: number | null): Uint8Array {
  // V8 may move the bytes of a small typed array, but not those of an ArrayBuffer.
  const memory = new ArrayBuffer(HEADER + VECTOR + CONTROL + text.length);
  const address = addressOf(new Uint8Array(memory));
  const view = new DataView(memory);
  const [vector, control, bytes] = [HEADER, HEADER + VECTOR, HEADER + VECTOR + CONTROL];
  new Uint8Array(memory, bytes).set(text);
  view.setBigUint64(16, address + BigInt(vector), true);
  view.setBigUint64(24, 1n, true);
  view.setBigUint64(vector, address + BigInt(bytes), true);
  view.setBigUint64(vector + 8, BigInt(text.length), true);
  if (fd !== null) {
    view.setBigUint64(32, address + BigInt(control), true);
    view.setBigUint64(40, BigInt(CONTROL), true);
    view.setBigUint64(control, BigInt(CONTROL_LENGTH), true);
    view.setInt32(control + 8, SOL_SOCKET, true);
    view.setInt32(control + 12, SCM_RIGHTS, true);
    view.setInt32(control + 16, fd, true);
  }
  return new Uint8Array(memory, 0, HEADER);
}

/**
 * Returns the service manager that started this process; null if there is none that accepts messages. Removes
 * the environment variables, so that processes that this process starts do not get them.
 */
export function serviceManager(
  environment: NodeJS.ProcessEnv,
  failed: (failure: unknown) => void,
): ServiceManager | null {
  const { NOTIFY_SOCKET: path, WATCHDOG_USEC: period, WATCHDOG_PID: pid = String(process.pid) } = environment;
  delete environment.NOTIFY_SOCKET;
  delete environment.WATCHDOG_USEC;
  delete environment.WATCHDOG_PID;
  if (path === undefined || path === '') return null;
  const isWatched = Number(period) > 0 && pid === String(process.pid);
  return new ServiceManager(path, isWatched ? Number(period) / 1_000 : null, failed);
}

/**
 * Returns the descriptors that the service manager has passed to this process, by name (sd_listen_fds(3)).
 * Removes the environment variables, so that processes that this process starts do not get them.
 */
export function inheritedDescriptors(environment: NodeJS.ProcessEnv): Map<string, number> {
  const { LISTEN_PID: pid, LISTEN_FDS: count, LISTEN_FDNAMES: names = '' } = environment;
  delete environment.LISTEN_PID;
  delete environment.LISTEN_FDS;
  delete environment.LISTEN_FDNAMES;
  if (pid !== String(process.pid)) return new Map();
  const all = names.split(':').slice(0, Number(count));
  return new Map(all.map((name, index) => [name, FIRST_DESCRIPTOR + index]));
}
