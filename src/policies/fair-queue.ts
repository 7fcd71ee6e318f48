import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';

type Waiting = { readonly begin: () => void };

/** Thrown by `FairQueue.run` if the queue already contains the maximum number of tasks for the subject. */
export class QueueFull extends Error {
  override readonly name = 'QueueFull';
  readonly code = 'queue_full';
}

/**
 * Runs one task at a time. A subject is the subject of the API token that sent a request. Subjects with
 * waiting tasks alternate, so a subject need not wait for all tasks of another subject.
 */
export class FairQueue {
  /** The waiting tasks of each subject. The map is in the order in which the subjects run their next task. */
  readonly #waiting = new Map<string, Waiting[]>();
  #isBusy = false;

  constructor(private readonly mostPerSubject: number) {}

  /**
   * Waits until the tasks before it have ended, and runs the task. Rejects immediately with `QueueFull` if
   * too many tasks of the subject are waiting.
   */
  async run<T>(subject: string, work: () => Promise<T>): Promise<T> {
    if (this.#isBusy) await this.#wait(subject);
    this.#isBusy = true;
    try {
      return await work();
    } finally {
      this.#next();
    }
  }

  #wait(subject: string): Promise<void> {
    const own = this.#waiting.get(subject) ?? [];
    if (own.length >= this.mostPerSubject) {
      throw new QueueFull(`${own.length} requests of this token subject are waiting already`);
    }
    this.#waiting.set(subject, own);
    return new Promise((begin) => {
      own.push({ begin });
    });
  }

  #next(): void {
    const [first] = this.#waiting;
    if (first === undefined) {
      this.#isBusy = false;
      return;
    }
    const [subject, own] = first;
    this.#waiting.delete(subject);
    const next = own.shift();
    if (own.length > 0) this.#waiting.set(subject, own);
    // `#isBusy` stays true until the next task starts, so that `run` cannot start another task in between.
    next?.begin();
  }
}

/** Runs a task like `queue.run`. Returns a refusal if too many tasks of the subject are waiting. */
export async function runOrRefuse<T>(queue: FairQueue, subject: string, work: () => Promise<T>): Promise<T | Refusal> {
  try {
    return await queue.run(subject, work);
  } catch (failure) {
    if (failure instanceof QueueFull) return refusal('too_many_questions', failure.message);
    throw failure;
  }
}
