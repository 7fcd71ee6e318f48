import { type Stats, unwatchFile, watchFile } from 'node:fs';
import type { PolicyText } from './policy-text.js';

export type FileEvents = {
  /** Reads the file. */
  read(path: string): Promise<PolicyText>;
  /** Writes what the file contains to the node. Rejects if the node refuses it. */
  apply(file: PolicyText, path: string): Promise<void>;
  /**
   * Returns whether the node would refuse the same text again. If so, `FollowedFile` does not apply this text
   * again before the file changes.
   */
  isFinal(failure: unknown): boolean;
  /**
   * Called with a failure to apply the file. It is not called again while the next failures have the same
   * message.
   */
  failed(failure: unknown, path: string): void;
};

/**
 * Applies a file with a policy or with assertions when `begin` is called and after each change of the file,
 * one write at a time. Polls the status of the file path. Polling also notices a file that is replaced by
 * `rename`, and a changed symbolic link.
 */
export class FollowedFile {
  #applying: Promise<unknown>;
  #isClosed = false;
  #refused: { readonly json: string; readonly failure: unknown } | null = null;
  #reported: string | null = null;
  readonly #watchers = new Set<(failure: string | null) => void>();

  /**
   * `path`: null to follow no file. `ready`: the first write waits until this promise
   * resolves. `intervalMs`: the polling interval.
   */
  constructor(
    private path: string | null,
    private readonly events: FileEvents,
    ready: Promise<void>,
    private readonly intervalMs = 1_000,
  ) {
    this.#applying = ready;
  }

  /**
   * Applies the file. May be called again after a failure. Rejects if the file cannot be read, or if the node
   * refuses it.
   */
  begin(): Promise<void> {
    const applied = this.#applying.then(() => this.#apply());
    this.#applying = applied.catch(() => {});
    return applied;
  }

  /**
   * Calls the listener after each attempt to apply a changed file: with the error message, or with null after
   * success. Returns a function that removes the listener.
   */
  watch(listener: (failure: string | null) => void): () => void {
    if (this.#watchers.size === 0) this.#beginPolling();
    this.#watchers.add(listener);
    return () => {
      this.#watchers.delete(listener);
      if (this.#watchers.size === 0) this.#endPolling();
    };
  }

  /** Stops applying changes of the file. */
  close(): void {
    this.#isClosed = true;
    this.#endPolling();
  }

  /**
   * Follows another file from now on, or none, and applies it. If it cannot be applied, rejects and follows
   * the former file.
   */
  async follow(path: string | null): Promise<void> {
    const before = this.path;
    this.#move(path);
    try {
      await this.begin();
    } catch (failure) {
      this.#move(before);
      throw failure;
    }
    this.#tell(null);
  }

  #move(path: string | null): void {
    this.#endPolling();
    this.path = path;
    this.#refused = null;
    this.#reported = null;
    if (this.#watchers.size > 0) this.#beginPolling();
  }

  #beginPolling(): void {
    if (this.path === null || this.#isClosed) return;
    watchFile(this.path, { interval: this.intervalMs, persistent: false }, this.#changed);
  }

  #endPolling(): void {
    if (this.path !== null) unwatchFile(this.path, this.#changed);
  }

  readonly #changed = (now: Stats, before: Stats): void => {
    if (now.mtimeMs === before.mtimeMs && now.ino === before.ino && now.size === before.size) return;
    this.#refused = null;
    this.#reported = null;
    this.begin().then(
      () => this.#tell(null),
      (failure: unknown) => this.#tell(sentenceOf(failure)),
    );
  };

  async #apply(): Promise<void> {
    const { path } = this;
    if (this.#isClosed || path === null) return;
    try {
      const file = await this.events.read(path);
      if (this.#refused?.json === file.json) throw this.#refused.failure;
      await this.events.apply(file, path).catch((failure: unknown) => {
        if (this.events.isFinal(failure)) this.#refused = { json: file.json, failure };
        throw failure;
      });
      this.#reported = null;
    } catch (failure) {
      const sentence = sentenceOf(failure);
      if (sentence !== this.#reported) this.events.failed(failure, path);
      this.#reported = sentence;
      throw failure;
    }
  }

  #tell(failure: string | null): void {
    for (const watcher of this.#watchers) watcher(failure);
  }
}

function sentenceOf(failure: unknown): string {
  return failure instanceof Error ? failure.message : String(failure);
}
