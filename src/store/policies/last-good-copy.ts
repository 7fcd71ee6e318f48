import type { PolicyPut } from '#contracts/policy/policy-record.js';
import type { FindingListener } from '#store/store-finding.js';
import type { Bodies, BodyWrite, WholeBodyWrite } from './bodies.js';
import type { LastGoodFile } from './last-good.js';
import type { PolicyRow, PolicyState } from './policy-row.js';

/**
 * A commit of this node: the policy that it writes, the stored policy before it, and the write of the policy
 * text.
 */
type Written = {
  readonly put?: PolicyPut | undefined;
  readonly before?: PolicyRow | undefined;
  readonly body?: BodyWrite | WholeBodyWrite | undefined;
};

/** Keeps the last-good copy, which is a second copy of the active policy in a file, up to date. */
export class LastGoodCopy {
  #isOld = false;
  /**
   * The last policy commit of this node that the last-good copy (second copy of the active policy) does not
   * contain yet.
   */
  #written: Written = {};

  constructor(
    private readonly file: LastGoodFile,
    private readonly bodies: Bodies,
    private readonly onFinding: FindingListener,
  ) {}

  /** Whether the last-good copy (file beside the database) is older than the active policy. */
  get isOld(): boolean {
    return this.#isOld;
  }

  /**
   * Must be called before a commit of this node, so that `write` need not read the policy text from the
   * store.
   */
  willCommit(written: Written): void {
    this.#written = written;
  }

  /** Must be called after each change of the policies in memory. */
  changed(before: PolicyState, { head, rows }: PolicyState): void {
    const active = head.active ?? '';
    this.#isOld ||=
      head.generation !== before.head.generation ||
      head.active !== before.head.active ||
      head.pending?.id !== before.head.pending?.id ||
      rows.get(active)?.body_sha256 !== before.rows.get(active)?.body_sha256 ||
      rows.get(active)?.revision !== before.rows.get(active)?.revision;
  }

  /**
   * Writes the active policy to the last-good copy. If this write fails, only `onFinding` reports the
   * failure: the commit to the store has already succeeded.
   */
  async write({ head, rows }: PolicyState): Promise<void> {
    const row = head.active === null ? undefined : rows.get(head.active);
    // Keep the last-good copy while the record of the active policy cannot be read.
    if (head.active !== null && row === undefined) return;
    this.#isOld = false;
    const { put, before, body } = this.#written;
    this.#written = {};
    try {
      if (row === undefined) {
        await this.file.write({ head, active: null });
        return;
      }
      // Compare the hash of the text and not the revision: a failed commit and a later record can have the
      // same revision.
      const isPut = put?.record.id === row.id && body?.sha256 === row.body_sha256;
      if (isPut && 'edit' in put && before !== undefined) {
        const { edit } = put;
        if (await this.file.append({ head, row, of: before.body_sha256, edit })) return;
      }
      const compressed =
        isPut && 'compressed' in body ? body.compressed : await this.bodies.compressed(row.body_sha256);
      await this.file.write({ head, active: { row, compressed } });
    } catch (error) {
      this.onFinding({
        code: 'last_good_unwritable',
        message: `write the last-good copy of generation ${head.generation}: ${error instanceof Error ? error.message : String(error)}`,
      });
    }
  }
}
