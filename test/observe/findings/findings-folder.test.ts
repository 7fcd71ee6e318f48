import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it, onTestFinished } from 'vitest';
import { EVERY_FINDING } from '#observe/findings/finding-filter.js';
import { type FindingStore, type FindingStoreOptions, MergeError } from '#observe/findings/store/finding-store.js';
import { openFindings } from '#observe/findings/store/findings-folder.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { built } from '#threads/built-file.js';
import { seen } from './seen.js';

const OPTIONS: FindingStoreOptions = { retentionMs: 1e12, maxEntries: 1_000, sinks: [], now: () => 500_000 };

function opened(folder: string, options: Partial<FindingStoreOptions> = {}) {
  const said: string[] = [];
  const ledger = openFindings(folder, { ...OPTIONS, ...options }, ({ code, message }) =>
    said.push(`${code} ${message}`),
  );
  onTestFinished(() => ledger.close());
  return { ledger, said };
}
const counts = async (ledger: FindingStore) => {
  const { items } = await ledger.query({ filter: EVERY_FINDING, limit: 1_000, cursor: null });
  return items.map(({ source, count }) => `${source} ${count}`);
};
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'done',
    ({ code }: { readonly code: string }) => code,
  );

/**
 * Starts a process that merges findings. Kills the process `delayMs` after the process printed the merge
 * number `from + rounds`. Returns the number of the last merge that the process printed.
 */
async function killedWhileMerging(folder: string, from: number, rounds: number, delayMs: number): Promise<number> {
  const argv = [built('test/observe/findings/merging-process.js'), folder, String(from)];
  const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'inherit'] });
  let last = from;
  createInterface(child.stdout).on('line', (line) => {
    last = Number(line);
    if (last === from + rounds) setTimeout(() => child.kill('SIGKILL'), delayMs);
  });
  const [, signal] = await once(child, 'close');
  expect(signal).toBe('SIGKILL');
  return last;
}

describe('the database folder of the findings', () => {
  it('the database folder of the findings has every acknowledged merge in all indexes after the process is killed by SIGKILL', async () => {
    const folder = join(temporaryFolder(), 'findings');
    let round = 0;
    for (let life = 0; life < 5; life++) {
      const merged = await killedWhileMerging(folder, round, 2 + life, Math.random() * 8);
      const { ledger } = opened(folder, { sinks: ['file'] });
      const all = await ledger.query({ filter: EVERY_FINDING, limit: 1_000, cursor: null });
      const byType = await ledger.query({
        filter: { ...EVERY_FINDING, types: ['l4_deny'] },
        limit: 1_000,
        cursor: null,
      });
      expect([all.items.length, byType, ledger.count]).toEqual([300, all, 300]);
      const rounds = all.items.map(({ lastMs }) => lastMs - 1_000);
      expect(Math.min(...rounds)).toBeGreaterThanOrEqual(merged);
      expect(Math.max(...rounds)).toBeLessThanOrEqual(merged + 1);
      const told = new Map<string, number>();
      for (;;) {
        const { items, next } = await ledger.outbox.read('file', 500);
        if (items.length === 0) break;
        for (const { finding, newCount } of items) told.set(finding.id, (told.get(finding.id) ?? 0) + newCount);
        await ledger.outbox.acknowledge('file', next);
      }
      const grown = all.items.map(({ id, lastMs }) => [id, lastMs - 1_000 - round]);
      expect([...told].sort()).toEqual(grown.sort());
      await ledger.close();
      const again = opened(folder, { sinks: ['file'] });
      // Findings that the last merge did not reach are merged again, so that all findings have the same
      // `lastMs` for the next process.
      round = merged + 1;
      const late = all.items.filter(({ lastMs }) => lastMs < 1_000 + round);
      await again.ledger.merge(late.map(({ id: _, ...delta }) => ({ ...delta, lastMs: 1_000 + round, count: 1 })));
      const rest = await again.ledger.outbox.read('file', 500);
      await again.ledger.outbox.acknowledge('file', rest.next);
      expect(rest.items.length).toBe(late.length);
      await again.ledger.close();
    }
  });

  it('the database folder of the findings is renamed and replaced by an empty folder if the database in the folder cannot be opened', async () => {
    const root = temporaryFolder();
    const folder = join(root, 'findings');
    const first = opened(folder);
    await first.ledger.merge([seen()]);
    await first.ledger.close();
    writeFileSync(join(folder, 'CURRENT'), 'nonsense');
    const { ledger, said } = opened(folder);
    await ledger.merge([seen({ source: '10.0.0.8' })]);
    expect(await counts(ledger)).toEqual(['10.0.0.8 1']);
    expect(said).toEqual([expect.stringMatching(/^store_quarantined open the store .*kept in .*findings\.damaged-/)]);
    expect(readdirSync(root).length).toBe(2);
  });

  it('the database folder of the findings is renamed if a merge finds damage, and a new folder stores the findings of the merge', async () => {
    const root = temporaryFolder();
    const folder = join(root, 'findings');
    const first = opened(folder, { maxEntries: 10_000 });
    await first.ledger.merge(Array.from({ length: 2_000 }, (_, at) => seen({ source: `10.1.${at >> 8}.${at & 255}` })));
    await first.ledger.close();
    // RocksDB writes the merged findings to table files only when the database is opened again. The test then
    // overwrites the table files.
    const { ledger, said } = opened(folder, { maxEntries: 10_000 });
    await ledger.query({ filter: { ...EVERY_FINDING, types: ['gap'] }, limit: 1, cursor: null });
    const tables = readdirSync(folder).filter((name) => name.endsWith('.sst'));
    for (const name of tables) writeFileSync(join(folder, name), Buffer.alloc(65_536, 0x5a));
    expect(tables.length).toBeGreaterThan(0);
    await ledger.merge(
      Array.from({ length: 300 }, (_, at) => seen({ source: `10.1.7.${at & 255}`, lastMs: 2_000 + at })),
    );
    const [one, other] = await Promise.all([counts(ledger), counts(ledger)]);
    expect([one, other.length]).toEqual([other, 256]);
    expect(said).toEqual([expect.stringMatching(/^store_quarantined .*kept in .*findings\.damaged-/)]);
    expect(readdirSync(root).length).toBe(2);
  });

  skipUnless(process.getuid?.() === 0, LACKS.root).test(
    'the database folder of the findings keeps every finding if a full disk has space again and the failed merges are repeated',
    async () => {
      const disk = temporaryFolder();
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', disk]);
      try {
        const { ledger, said } = opened(join(disk, 'findings'));
        await ledger.merge([seen()]);
        const ballast = join(disk, 'ballast');
        try {
          writeFileSync(ballast, Buffer.alloc(8 * 1024 * 1024));
        } catch {}
        const path = 'x'.repeat(16_000);
        const large = seen({ type: 'http_deny', http: { method: 'GET', host: 'a.example', path } });
        const first = await ledger.merge([large]).catch((error: unknown) => error);
        const again = await ledger.merge([large, seen()]).catch((error: unknown) => error);
        if (!(first instanceof MergeError && again instanceof MergeError)) throw first;
        expect([first.code, again.code]).toEqual(['store_no_space', 'store_no_space']);
        expect([first.unmerged, again.unmerged]).toEqual([[large], [large, seen()]]);
        rmSync(ballast);
        await ledger.merge(again.unmerged);
        expect((await counts(ledger)).sort()).toEqual(['10.0.0.7 1', '10.0.0.7 2']);
        expect(said).toEqual([]);
        await ledger.close();
      } finally {
        execFileSync('umount', [disk]);
      }
    },
  );

  it('after `FindingStore.close`, every call for the findings rejects with store_closed', async () => {
    const { ledger } = opened(join(temporaryFolder(), 'findings'));
    await ledger.merge([seen()]);
    await ledger.close();
    expect(await codeOf(ledger.merge([]))).toBe('store_closed');
    expect(await codeOf(counts(ledger))).toBe('store_closed');
  });
});
