import { RECORDS } from '#store/records/records.js';
import { StoreError } from '#store/store-error.js';
import type { KvOperation, KvStore, PolicyPlan } from '#store/store-types.js';
import { HEAD } from './policy-plan.js';

/** The time in milliseconds before a store checks again whether it contains a commit. */
const SETTLE_MS = 5_000;

/**
 * Writes commits to the local store, and finds out whether the store contains a commit whose batch failed.
 * `runExclusive`: the mutex under which `write` and `settle` run. `onStored` receives the operations of a
 * commit whose outcome was unknown, when it is known that the store contains them.
 */
export class CommitWriter {
  /** The last commit of this node, if it is unknown whether the store contains it. */
  #unknown: PolicyPlan | null = null;
  #settling: NodeJS.Timeout | undefined;

  constructor(
    private readonly kv: KvStore,
    private readonly runExclusive: (task: () => Promise<void>) => Promise<void>,
    private readonly onStored: (operations: readonly KvOperation[]) => void,
  ) {}

  /**
   * Writes the batch of a commit. A failed batch can be in the log of RocksDB, and then the next start
   * applies it. So after a failure, this method reads whether the store contains the commit. Throws
   * `outcome_unknown` if that read fails too.
   */
  async write(plan: PolicyPlan): Promise<void> {
    try {
      await this.kv.batch(plan.operations, { sync: true });
    } catch (failure) {
      this.#unknown = plan;
      const isStored = await this.#isStored(plan).catch((unknown: unknown) => {
        this.#settleLater();
        throw unknown;
      });
      this.#unknown = null;
      if (!isStored) throw failure;
    }
  }

  /**
   * Calls `onStored` if the outcome of the last commit was unknown and the store contains it. Throws
   * `store_unavailable` if the outcome is still unknown.
   */
  async settle(): Promise<void> {
    const plan = this.#unknown;
    if (plan === null) return;
    const isStored = await this.#isStored(plan).catch((cause: unknown) => {
      const reason = 'it is unknown whether the write before is stored';
      throw new StoreError('store_unavailable', `${reason}; nothing was changed`, { cause });
    });
    this.#unknown = null;
    if (isStored) this.onStored(plan.operations);
  }

  /**
   * Checks at intervals whether the store contains the last commit, until this is known, so that reads of
   * policies return the right state.
   */
  #settleLater(): void {
    const settle = (): void => {
      void this.runExclusive(() => this.settle()).catch((failure: unknown) => {
        if (this.#unknown === null) throw failure;
        this.#settleLater();
      });
    };
    clearTimeout(this.#settling);
    this.#settling = setTimeout(settle, SETTLE_MS).unref();
  }

  /**
   * Whether the store contains a commit whose batch failed. The empty batch makes RocksDB open the database
   * again, apply its log and write the result to the disk. Until this succeeds, a power failure can remove
   * the commit from the log.
   */
  async #isStored({ head }: PolicyPlan): Promise<boolean> {
    try {
      const synced = await this.kv.batch([], { sync: true }).then(
        () => null,
        (failure: unknown) => ({ failure }),
      );
      const bytes = await this.kv.get(HEAD);
      const commit = bytes === null ? undefined : RECORDS.head.read(HEAD, bytes).commit;
      if (commit !== head.commit) return false;
      if (synced !== null) throw synced.failure;
      return true;
    } catch (cause) {
      throw new StoreError('outcome_unknown', 'the disk does not report whether it has stored the write', { cause });
    }
  }
}
