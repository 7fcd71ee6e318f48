import { appendFileSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { PolicyPut } from '#contracts/policy/policy-record.js';
import { loadPolicyStore } from '#store/policies/policy-store.js';
import { openStore } from '#store/store.js';
import type { StoreError } from '#store/store-error.js';
import type { StoreFinding } from '#store/store-finding.js';
import type { KvOperation, KvStore } from '#store/store-types.js';
import { Random, seedOf } from '#test/seed.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { noCopy, storedPolicy } from './stored-policy.js';
import { temporaryFolder } from './temporary-folder.js';

/** Returns a memory store, and the list of the batches that were written to the store. */
function watched(): { kv: KvStore; written: KvOperation[][] } {
  const written: KvOperation[][] = [];
  const kv = createMemoryStore();
  const batch: KvStore['batch'] = (operations, options) => {
    written.push([...operations]);
    return kv.batch(operations, options);
  };
  return { kv: { ...kv, batch }, written };
}

const editOf = (revision: number, from: number, to: number, text: string): PolicyPut => ({
  record: storedPolicy({ id: 'a', revision }, '').record,
  edit: { revision: revision - 1, from, to, text: Buffer.from(text) },
});
const spliced = (text: string, from: number, to: number, fresh: string) => text.slice(0, from) + fresh + text.slice(to);

describe('a policy body that is stored as edits', () => {
  test('a policy body that is stored as edits equals the text with all edits applied, for each revision and for each slice of the text', async () => {
    const random = new Random(seedOf(Date.now() % 100_000));
    const policies = await loadPolicyStore(createMemoryStore(), noCopy, () => {});
    const letters = () => String.fromCharCode(97 + random.below(26)).repeat(random.pick([0, 1, 40, 5_000, 300_000]));
    const bodies = [''];
    let body = Array.from({ length: 40 }, letters).join('');
    await policies.commit({ put: storedPolicy({ id: 'a' }, body), generation: 1 });
    bodies.push(body);
    for (let revision = 2; revision < 40; revision++) {
      const from = random.below(body.length + 1);
      const to = Math.min(body.length, from + random.pick([0, 0, 1, 30, 5_000, 400_000]));
      const fresh = letters();
      await policies.commit({ put: editOf(revision, from, to, fresh), generation: revision });
      body = spliced(body, from, to, fresh);
      bodies.push(body);
      const [low = 0, high = 0] = [random.below(body.length + 1), random.below(body.length + 1)].sort((a, b) => a - b);
      const slice = await policies.slice('a', revision, low, high);
      expect(Buffer.from(slice ?? []).toString(), `seed ${random.seed}`).toBe(body.slice(low, high));
    }
    for (const [revision, wanted] of bodies.entries()) {
      const found = await policies.revision('a', revision);
      const text = found === null ? '' : Buffer.from(found.body).toString();
      expect(text === wanted, `seed ${random.seed}, revision ${revision}`).toBe(true);
    }
  });

  test('a policy body that is stored as edits needs less than 1/15 of the written bytes of the whole text for an edit of 10 bytes', async () => {
    const { kv, written } = watched();
    const policies = await loadPolicyStore(kv, noCopy, () => {});
    const random = new Random(7);
    const body = Array.from({ length: 500_000 }, () => random.word().toString(36)).join('');
    await policies.commit({ put: storedPolicy({ id: 'a' }, body), generation: 1 });
    await policies.commit({ put: editOf(2, 1_000_000, 1_000_010, 'x'), generation: 2 });
    const bytes = written.map((operations) =>
      operations.reduce((sum, operation) => sum + (operation.type === 'put' ? operation.value.length : 0), 0),
    );
    expect((bytes[1] ?? 0) * 15).toBeLessThan(bytes[0] ?? 0);
    expect(written[1]?.filter(({ key }) => key.startsWith('part/')).length).toBe(1);
  });

  test('a policy body that is stored as edits has at most four parts after many deletions, because the store joins small parts', async () => {
    const { kv, written } = watched();
    const policies = await loadPolicyStore(kv, noCopy, () => {});
    let length = 1024 * 1024;
    await policies.commit({ put: storedPolicy({ id: 'a' }, 'x'.repeat(length)), generation: 1 });
    for (let revision = 2; length > 100_000; revision++, length -= 50_000) {
      const from = (revision * 77_777) % (length - 50_000);
      await policies.commit({ put: editOf(revision, from, from + 50_000, ''), generation: revision });
    }
    const list = written.at(-1)?.find(({ key }) => key.startsWith('parts/'));
    const parts = JSON.parse(Buffer.from(list?.type === 'put' ? list.value : []).toString()) as { bytes: number }[];
    expect(parts.reduce((sum, part) => sum + part.bytes, 0)).toBe(length);
    expect(parts.length).toBeLessThanOrEqual(4);
  });

  test('an edit of a stored policy body is refused with revision_conflict if it names another revision than the stored revision', async () => {
    const policies = await loadPolicyStore(createMemoryStore(), noCopy, () => {});
    const code = (put: PolicyPut, generation: number) =>
      policies.commit({ put, generation }).catch((error: StoreError) => error.code);
    expect(await code(editOf(2, 0, 0, 'x'), 1)).toBe('revision_conflict');
    await policies.commit({ put: storedPolicy({ id: 'a' }, '{}'), generation: 1 });
    expect(await code(editOf(3, 0, 0, 'x'), 2)).toBe('revision_conflict');
    expect((await policies.active())?.body.toString()).toBe('{}');
  });
});

describe('the last-good copy of the active policy', () => {
  const opened = async <T>(dataDir: string, use: (store: Awaited<ReturnType<typeof openStore>>) => Promise<T>) => {
    const findings: StoreFinding['code'][] = [];
    const store = await openStore(dataDir, ({ code }) => findings.push(code));
    try {
      return { findings, result: await use(store) };
    } finally {
      await store.close();
    }
  };
  const activeText = (dataDir: string) =>
    opened(dataDir, async ({ policies }) => (await policies.active())?.body.toString());

  /**
   * Stores a body of about 320 KB of random text, and then three edits of the body. `whole` is the size of
   * the last-good file in bytes before the edits, and `grownBy` the number of bytes that the edits add.
   */
  async function edited(dataDir: string): Promise<{ text: string; grownBy: number; whole: number }> {
    const random = new Random(11);
    let text = Array.from({ length: 50_000 }, () => random.word().toString(36)).join('');
    const size = () => statSync(join(dataDir, 'last-good.policy')).size;
    const { result } = await opened(dataDir, async ({ policies }) => {
      await policies.commit({ put: storedPolicy({ id: 'a' }, text), generation: 1 });
      const whole = size();
      for (const revision of [2, 3, 4]) {
        const fresh = `revision ${revision}`;
        await policies.commit({
          put: editOf(revision, revision * 1000, revision * 1000 + 5, fresh),
          generation: revision,
        });
        text = spliced(text, revision * 1000, revision * 1000 + 5, fresh);
      }
      return { whole, grownBy: size() - whole };
    });
    return { text, ...result };
  }

  test('the last-good copy of the active policy (file beside the database) grows by less than 2 % for three small edits, and restores the whole policy', async () => {
    const dataDir = temporaryFolder();
    const { text, grownBy, whole } = await edited(dataDir);
    expect(grownBy * 50).toBeLessThan(whole);
    rmSync(join(dataDir, 'store'), { recursive: true });
    expect(await activeText(dataDir)).toEqual({ findings: ['head_damaged'], result: text });
    expect(await activeText(dataDir)).toEqual({ findings: [], result: text });
  });

  test('the last-good copy of the active policy (file beside the database) is rewritten when the store is opened after a crash left an incomplete entry at its end', async () => {
    const dataDir = temporaryFolder();
    const { text } = await edited(dataDir);
    const path = join(dataDir, 'last-good.policy');
    const content = readFileSync(path);
    for (const torn of [
      content.subarray(0, -1),
      content.subarray(0, -200),
      Buffer.concat([content, Buffer.alloc(30)]),
    ]) {
      writeFileSync(path, torn);
      expect(await activeText(dataDir)).toEqual({ findings: [], result: text });
      rmSync(join(dataDir, 'store'), { recursive: true });
      expect((await activeText(dataDir)).result).toBe(text);
    }
  });

  test('a repeated last entry in the last-good copy of the active policy (file beside the database) changes no policy when the store is opened again', async () => {
    const dataDir = temporaryFolder();
    const { text } = await edited(dataDir);
    const path = join(dataDir, 'last-good.policy');
    const content = readFileSync(path);
    // The last entry is appended a second time. A reader must not apply the edit twice.
    appendFileSync(path, content.subarray(-300));
    expect((await activeText(dataDir)).result).toBe(text);
  });

  test('the last-good copy of the active policy (file beside the database) is rewritten once during 128 edits, so that the file does not grow without limit', async () => {
    const dataDir = temporaryFolder();
    const sizes: number[] = [];
    await opened(dataDir, async ({ policies }) => {
      await policies.commit({ put: storedPolicy({ id: 'a' }, '{}'), generation: 1 });
      for (let revision = 2; revision < 130; revision++) {
        await policies.commit({ put: editOf(revision, 1, 1, ' '), generation: revision });
        sizes.push(statSync(join(dataDir, 'last-good.policy')).size);
      }
    });
    const shrunk = sizes.filter((size, at) => size < (sizes[at - 1] ?? 0)).length;
    expect(shrunk).toBe(1);
    expect((await activeText(dataDir)).result).toBe(`{${' '.repeat(128)}}`);
  });
});
