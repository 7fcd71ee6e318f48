import type { MembersMessage } from '#contracts/kubernetes/kubernetes-source.js';
import type {
  MemberList,
  MembershipChange,
  SelectorResolution,
  SelectorSet,
} from '#contracts/kubernetes/membership.js';
import type { Memberships } from '#kubernetes/members/memberships.js';
import type { Acknowledgement } from './acknowledgement.js';
import type { ObjectChanges, StoredIntegration } from './stored-objects.js';

/** The minimum time in milliseconds between two messages. */
const BATCH_MS = 20;
/** With this number of changed addresses, a message is sent at once. */
const BATCH_ADDRESSES = 500;
/** The maximum number of newly shared addresses (of two API servers) in a message; each becomes a finding. */
const MAX_SHARED = 100;
/**
 * The maximum number of owners of addresses, and of objects for the store, in one message. A larger message
 * would block the main thread.
 */
const MAX_RECORDS = 500;

type Sources = {
  readonly memberships: Memberships;
  readonly objects: ObjectChanges;
  readonly integrationOf: (name: string) => StoredIntegration;
};

/**
 * Sends the changes of members (addresses that Kubernetes objects own) to the main thread in messages. It
 * sends the next message after the listener has acknowledged the last one. Several changes of one address
 * between two messages become one change.
 */
export class MemberMessages {
  readonly #sources: Sources;
  readonly #acknowledgement: Acknowledgement;
  readonly #send: (message: MembersMessage) => void;
  /** The parts of the last message that are not sent yet. */
  #parts: MembersMessage[] = [];
  #isOpen = false;
  #isFirst = true;
  /** Whether there are changes since the last message: `changed` was called after the last `#make`. */
  #isChanged = false;
  #sentAt = 0;
  #timer: NodeJS.Timeout | undefined;
  #resolution: SelectorResolution | undefined;
  /** The number of calls of `#make`, which makes a message of all changes. */
  #made = 0;
  /** The waiting calls of `flushed`. `after`: the value of `#made` at the call. */
  #flushes: { readonly after: number; readonly resolve: () => void }[] = [];

  constructor(sources: Sources, acknowledgement: Acknowledgement, send: (message: MembersMessage) => void) {
    this.#sources = sources;
    this.#acknowledgement = acknowledgement;
    this.#send = send;
  }

  /**
   * Sends the first message, which replaces all members (addresses of pods and nodes), and from now on the
   * changes.
   */
  open(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#isChanged = true;
    this.#next();
  }

  /** Must be called after each change of selected addresses or of objects. */
  changed(): void {
    this.#isChanged = true;
    this.#schedule();
  }

  /** Must be called when the main thread has applied the last message, if this thread waits for that. */
  acknowledge(): void {
    // Return if a later message, which is not applied yet, was sent after the message for which the thread
    // waited.
    if (!this.#acknowledgement.isGiven()) return;
    const isFlushed = this.#parts.length === 0 && this.#resolveFlushes();
    // Let the caller of `flushed` run before the next message, so that it reads exactly the members
    // (addresses of pods and nodes) that the listener has applied.
    if (isFlushed && this.#flushes.length > 0) queueMicrotask(() => this.#next());
    else if (this.#isWaiting) this.#next();
    else this.#schedule();
  }

  /**
   * Resolves when the listener has applied all changes made before this call. The next message is made only
   * after the caller has continued. `open` must be called first.
   */
  flushed(): Promise<void> {
    return new Promise((resolve) => {
      this.#flushes.push({ after: this.#made, resolve });
      this.#next();
    });
  }

  /** Whether further parts, or callers of `flushed`, wait until the listener has applied the last message. */
  get #isWaiting(): boolean {
    return this.#parts.length > 0 || this.#flushes.length > 0;
  }

  #schedule(): void {
    if (!this.#isOpen || !this.#isChanged || !this.#acknowledgement.isGiven()) return;
    const wait = this.#sources.memberships.waiting < BATCH_ADDRESSES ? this.#sentAt + BATCH_MS - performance.now() : 0;
    // One read of a watch makes several changes one after the other. Wait for the microtask, so that one
    // message contains all of them.
    if (wait <= 0) queueMicrotask(() => this.#next());
    else this.#timer ??= setTimeout(() => this.#next(), wait);
  }

  #next(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const isDue = this.#isOpen && (this.#isChanged || this.#isWaiting);
    if (!isDue || !this.#acknowledgement.isGiven()) return;
    if (this.#parts.length === 0) this.#parts = this.#make();
    const message = this.#parts.shift();
    if (message === undefined) {
      this.#resolveFlushes();
      return;
    }
    this.#sentAt = performance.now();
    this.#acknowledgement.expect();
    this.#send(message);
    // Changes may have arrived between two parts of a message.
    const isAwaited = this.#isWaiting || this.#isChanged;
    if (isAwaited && this.#acknowledgement.isGiven()) queueMicrotask(() => this.acknowledge());
  }

  /** Returns whether a call of `flushed` is resolved. */
  #resolveFlushes(): boolean {
    const done = this.#flushes.filter(({ after }) => after < this.#made);
    this.#flushes = this.#flushes.filter(({ after }) => after >= this.#made);
    for (const { resolve } of done) resolve();
    return done.length > 0;
  }

  /** Returns the message with all changes, in parts; none if nothing has changed. */
  #make(): MembersMessage[] {
    this.#made += 1;
    this.#isChanged = false;
    const { memberships, objects, integrationOf } = this.#sources;
    const changes = memberships.drainChanges();
    const owners = memberships.owners.drainChanges();
    const stored = objects.drain(integrationOf);
    const shared = memberships.drainShared(MAX_SHARED);
    const { resolution } = memberships;
    const scope = resolution === this.#resolution ? undefined : resolution;
    const isFirst = this.#isFirst;
    const size = owners.length + stored.objects.length + stored.complete.length;
    if (!isFirst && changes.length === 0 && scope === undefined && size === 0) return [];
    this.#isFirst = false;
    this.#resolution = resolution;
    const count = Math.max(1, Math.ceil(Math.max(owners.length, stored.objects.length) / MAX_RECORDS));
    // Remove the record `complete` while the store contains only some of the objects, and write it with the
    // last part.
    const storedCount = Math.max(1, Math.ceil(stored.objects.length / MAX_RECORDS));
    const incomplete = storedCount === 1 ? [] : stored.complete.map(({ key }) => ({ key, value: null }));
    return Array.from({ length: count }, (_, part) => ({
      replaces: isFirst && part === 0 ? plainChange(memberships.list()) : null,
      changes: isFirst || part > 0 ? [] : changes.map(plainChange),
      owners: owners.slice(part * MAX_RECORDS, (part + 1) * MAX_RECORDS),
      shared: part === 0 ? shared : [],
      scope: part === 0 ? scope : undefined,
      stored: [
        ...(part === 0 ? incomplete : []),
        ...stored.objects.slice(part * MAX_RECORDS, (part + 1) * MAX_RECORDS),
        ...(part === storedCount - 1 ? stored.complete : []),
      ],
    }));
  }
}

/**
 * Returns a copy of a change of members in which the sets of selectors lack their fields `uses` and `last`,
 * so that it can be sent to another thread.
 */
export function plainChange({ added, addresses, sets, dropped }: MembershipChange): MemberList {
  return { added: added.map(({ number, keys }): SelectorSet => ({ number, keys })), addresses, sets, dropped };
}
