import { BehaviorSubject, type Observable } from 'rxjs';
import type { PendingChange } from '#contracts/policy/pending-change.js';

/**
 * A change that must be confirmed, and the time of its end in milliseconds of the clock of
 * `performance.now()`.
 */
export type ChangeDeadline = { readonly change: PendingChange; readonly atMs: number };

/** Measures the time of the pending change on a single node. In a cluster, etcd measures it. */
export class ConfirmationTime {
  readonly #deadline = new BehaviorSubject<ChangeDeadline | null>(null);

  /** Emits the deadline of the change that waits for its confirmation, or null, and then each new one. */
  get deadline(): Observable<ChangeDeadline | null> {
    return this.#deadline;
  }

  get hasPassed(): boolean {
    const deadline = this.#deadline.value;
    return deadline !== null && performance.now() >= deadline.atMs;
  }

  /**
   * Sets the present unconfirmed change. `isOld`: an earlier process wrote it. Then the remaining time is
   * computed from the time of the write (`at`) by the clock of the machine, limited to 0 and the full time.
   */
  note(change: PendingChange | null, { isOld }: { readonly isOld: boolean }): void {
    if (change?.id === this.#deadline.value?.change.id) return;
    if (change?.terms.kind !== 'confirm') {
      if (this.#deadline.value !== null) this.#deadline.next(null);
      return;
    }
    const { within_ms: withinMs } = change.terms;
    const elapsedMs = isOld ? Date.now() - Date.parse(change.at) : 0;
    const leftMs = Math.min(withinMs, Math.max(0, withinMs - elapsedMs));
    this.#deadline.next({ change, atMs: performance.now() + leftMs });
  }

  /** Replaces the deadline of a change by a more exact one, which the kernel has. */
  correct(change: string, atMs: number): void {
    const present = this.#deadline.value;
    if (present?.change.id === change) this.#deadline.next({ ...present, atMs });
  }
}
