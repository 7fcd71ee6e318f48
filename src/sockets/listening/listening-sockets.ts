import { familyOf, formatAddress } from '#addresses/ip-address.js';
import { closeOnExec, libc } from '#libc/libc.js';
import {
  isBoundTo,
  openListener,
  openReceiver,
  type SocketAddress,
  type SocketKind,
  type SocketOptions,
  setOptions,
} from '#sockets/socket-options.js';

/** A socket on which a part of the node listens. */
export type ListeningSocket = SocketOptions &
  SocketAddress & {
    readonly kind: SocketKind;
    /** The number of this socket among TCP sockets with the same address and port (SO_REUSEPORT). */
    readonly shared?: number;
  };
/** The descriptors of listening sockets, by the name that `nameOf` returns. */
export type SocketDescriptors = Readonly<Record<string, number>>;
/** The parts of the node whose listening sockets survive the process. */
export type ListeningPart = 'api' | 'dns' | 'plane';

/** Stores file descriptors, and hands them to the next process of the service. */
export type DescriptorStore = {
  store(name: string, fd: number): void;
  remove(name: string): void;
};

/**
 * The longest time, in milliseconds, for which packets and connections wait in sockets that an earlier
 * process opened. After this time, the statechart of the node regards the start as complete
 * (`startDeadline`).
 */
export const MAX_WAIT_MS = 30_000;

/**
 * A socket that is no longer configured stays open for this time in milliseconds. If it is configured again
 * in this time, the same socket is used, because a new socket could not bind the address.
 */
const REMOVED_FOR_MS = 3_000;

/**
 * Owns the listening sockets of the API, the DNS proxy and the service plane, which use duplicates of the
 * descriptors. So packets and connections wait in a socket while the thread of its part restarts. With a
 * `store`, they also wait while no process of the service runs.
 */
export class ListeningSockets {
  readonly #open = new Map<string, number>();
  readonly #removing = new Map<string, NodeJS.Timeout>();

  constructor(
    private readonly store: DescriptorStore | null = null,
    /** The descriptors that the previous process has stored. */
    private readonly inherited: Map<string, number> = new Map(),
    /** Called with the name of each inherited socket that this process closes. */
    private readonly onUnused: (name: string) => void = () => {},
  ) {
    for (const fd of inherited.values()) closeOnExec(fd);
  }

  /**
   * Returns the descriptors of the `wanted` sockets, and whether one of the sockets was open before. Opens
   * missing sockets; if that fails, closes the sockets that it opened, and throws. This object continues to
   * own all the descriptors.
   */
  open(part: ListeningPart, wanted: readonly ListeningSocket[]): { descriptors: SocketDescriptors; isKept: boolean } {
    const descriptors: Record<string, number> = {};
    const opened: string[] = [];
    // Close inherited sockets that are not wanted: a socket without SO_REUSEPORT would block the address of a
    // wanted socket.
    const names = new Set(wanted.map((socket) => nameOf(part, socket)));
    for (const [name, fd] of this.inherited)
      if (name.startsWith(`${part}-`) && !names.has(name)) this.#discard(name, fd);
    try {
      for (const socket of wanted) {
        const name = nameOf(part, socket);
        const kept = this.#open.get(name) ?? this.#takeOver(name, socket);
        if (kept === undefined) opened.push(name);
        descriptors[name] = kept ?? this.#add(name, openNew(socket));
      }
    } catch (failure) {
      for (const name of opened) this.#close(name);
      throw failure;
    }
    for (const name of Object.keys(descriptors)) this.#keep(name);
    this.closeUnused(part);
    return { descriptors, isKept: opened.length < wanted.length };
  }

  /**
   * Opens the `wanted` sockets, and calls `use` with their descriptors. If `use` rejects, closes the sockets
   * that this call opened. Otherwise closes the other sockets of the part a short time later.
   */
  async change(
    part: ListeningPart,
    wanted: readonly ListeningSocket[],
    use: (descriptors: SocketDescriptors) => Promise<void>,
  ): Promise<void> {
    const before = new Set(this.#open.keys());
    const { descriptors } = this.open(part, wanted);
    try {
      await use(descriptors);
    } catch (failure) {
      for (const name of Object.keys(descriptors)) if (!before.has(name)) this.#close(name);
      throw failure;
    }
    for (const name of this.#open.keys())
      if (name.startsWith(`${part}-`) && !(name in descriptors)) this.#closeLater(name);
  }

  /** Closes the inherited sockets of a part that the part did not open. */
  closeUnused(part: ListeningPart): void {
    for (const [name, fd] of this.inherited) if (name.startsWith(`${part}-`)) this.#discard(name, fd);
  }

  /** Closes the sockets of a part in this process. The store keeps its descriptors. */
  close(part: ListeningPart): void {
    for (const [name, fd] of this.#open) {
      if (!name.startsWith(`${part}-`)) continue;
      this.#keep(name);
      this.#open.delete(name);
      libc.close(fd);
    }
  }

  #takeOver(name: string, socket: ListeningSocket): number | undefined {
    const fd = this.inherited.get(name);
    if (fd === undefined) return undefined;
    if (!isBoundTo(fd, socket.kind, socket)) {
      this.#discard(name, fd);
      return undefined;
    }
    this.inherited.delete(name);
    setOptions(fd, socket.kind, socket, familyOf(socket.address));
    this.#open.set(name, fd);
    return fd;
  }

  #discard(name: string, fd: number): void {
    this.inherited.delete(name);
    this.store?.remove(name);
    libc.close(fd);
    this.onUnused(name);
  }

  #add(name: string, fd: number): number {
    this.#open.set(name, fd);
    this.store?.store(name, fd);
    return fd;
  }

  #keep(name: string): void {
    clearTimeout(this.#removing.get(name));
    this.#removing.delete(name);
  }

  #closeLater(name: string): void {
    if (this.#removing.has(name)) return;
    const timer = setTimeout(() => this.#close(name), REMOVED_FOR_MS);
    this.#removing.set(name, timer.unref());
  }

  #close(name: string): void {
    this.#keep(name);
    const fd = this.#open.get(name);
    if (fd === undefined) return;
    this.#open.delete(name);
    this.store?.remove(name);
    libc.close(fd);
  }
}

/**
 * Returns the name of a socket. The name identifies the socket in the store, also for the next process.
 * systemd allows no colon in a name.
 */
function nameOf(part: ListeningPart, { kind, address, port, shared }: ListeningSocket): string {
  const host = formatAddress(address).replaceAll(':', '.');
  return [part, kind, host, port, ...(shared === undefined ? [] : [shared])].join('-');
}

/** Returns the descriptor of a socket that `ListeningSockets` has opened. */
export function descriptorIn(descriptors: SocketDescriptors, part: ListeningPart, socket: ListeningSocket): number {
  const name = nameOf(part, socket);
  const fd = descriptors[name];
  if (fd === undefined) throw new Error(`look up a listening socket: ${name} is not open`);
  return fd;
}

function openNew(socket: ListeningSocket): number {
  if (socket.kind === 'udp') return openReceiver(socket, socket);
  return openListener(socket, { ...socket, isShared: socket.shared !== undefined });
}
