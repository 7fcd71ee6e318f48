import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import type { MemberRecord } from '#policy/model/sources/member-record.js';

/**
 * A part of the node that uses the members (addresses that Kubernetes objects own), such as the DNS proxy.
 * Its methods reject while the part does not run.
 */
export type MemberSink<Result> = {
  changeMembers(change: MembershipChange): Promise<Result>;
  replaceMembers(list: MemberList): Promise<Result>;
};

const RETRY_MS = 1_000;

/**
 * Keeps the members of one part of the node equal to a `MemberRecord`. After a failed change, the part may
 * have applied only some of the addresses, so the next call replaces all members.
 */
export class MemberSync<Result> {
  readonly #sink: MemberSink<Result>;
  readonly #record: MemberRecord;
  readonly #listener: SyncListener<Result>;
  #isBehind = true;
  #retry: NodeJS.Timeout | undefined;

  constructor(sink: MemberSink<Result>, record: MemberRecord, listener: SyncListener<Result>) {
    this.#sink = sink;
    this.#record = record;
    this.#listener = listener;
  }

  /** Sends a change to the part of the node. Resolves when the part has applied it, or does not run. */
  async change(change: MembershipChange): Promise<void> {
    await (this.#isBehind ? this.replace() : this.#attempt(() => this.#sink.changeMembers(change)));
  }

  async replace(): Promise<void> {
    // Before the first members (addresses of pods and nodes) are known, the members of an earlier process
    // stay in force.
    if (this.#record.isKnown) await this.#attempt(() => this.#sink.replaceMembers(this.#record.list()));
  }

  close(): void {
    clearTimeout(this.#retry);
  }

  async #attempt(call: () => Promise<Result>): Promise<void> {
    clearTimeout(this.#retry);
    try {
      const result = await call();
      this.#isBehind = false;
      this.#listener.noted(result);
    } catch (failure) {
      if (!this.#isBehind)
        this.#listener.trouble('members of selectors could not be passed to a part of the node', failure);
      this.#isBehind = true;
      this.#retry = setTimeout(() => void this.replace(), RETRY_MS);
      this.#retry.unref();
    }
  }
}

type SyncListener<Result> = {
  readonly trouble: (message: string, failure: unknown) => void;
  /** Called with the result of each successful update of the part of the node. */
  readonly noted: (result: Result) => void;
};
