import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RocksDb } from '#rocksdb/rocksdb.js';
import { openRocksDbStore } from '#store/disk/rocksdb-store.js';
import { RECORDS } from '#store/records/records.js';
import { openStore, type Store } from '#store/store.js';
import type { StoreError } from '#store/store-error.js';
import type { StoreFinding } from '#store/store-finding.js';
import { type Authority, createAuthority } from '#store/tokens/authority.js';
import { Random, seedOf } from '#test/seed.js';
import { storedPolicy } from './stored-policy.js';
import { temporaryFolder } from './temporary-folder.js';

const MODE = { enabled: false, revision: 1, updated_at: '2026-01-02T03:04:05.000Z', updated_by: 'ops' };
const first = storedPolicy({ id: 'a', name: 'edge' }, '{"default_policy":"deny"}');
const second = storedPolicy({ id: 'a', name: 'edge', revision: 2 }, '{"default_policy":"allow"}');

async function withStore<T>(
  dataDir: string,
  use: (store: Store, findings: StoreFinding['code'][]) => Promise<T>,
): Promise<T> {
  const findings: StoreFinding['code'][] = [];
  const store = await openStore(dataDir, ({ code }) => findings.push(code));
  try {
    return await use(store, findings);
  } finally {
    await store.close();
  }
}

async function committed(dataDir: string): Promise<void> {
  await withStore(dataDir, async ({ policies }) => {
    await policies.commit({ put: first, generation: 1 });
    await policies.commit({ put: second, generation: 2 });
  });
}

const inForce = (dataDir: string) =>
  withStore(dataDir, async ({ policies }, findings) => ({
    findings,
    generation: await policies.generation(),
    active: await policies.active().catch((error: StoreError) => error.code),
  }));

async function damage(dataDir: string, key: string): Promise<void> {
  const raw = await RocksDb.open(join(dataDir, 'store'), false);
  const [stored] = await raw.getMany([Buffer.from(key)]);
  const value = stored ?? expect.fail(`${key} is missing`);
  value[value.length - 1] = (value[value.length - 1] ?? 0) ^ 0x40;
  await raw.write([{ key: Buffer.from(key), value }], true);
  await raw.close();
}

/**
 * Returns two keys of the active policy's body: the key of the list of parts, and the key of the first part.
 */
const bodyKeysOf = async (dataDir: string): Promise<{ list: string; part: string }> => {
  const raw = await RocksDb.open(join(dataDir, 'store'), true);
  const read = async (key: string) => String((await raw.getMany([Buffer.from(key)]))[0]);
  const list = `parts/${/"body_sha256":"([0-9a-f]{64})"/.exec(await read('policy/a'))?.[1]}`;
  const part = `part/${/"sha256":"([0-9a-f]{64})"/.exec(await read(list))?.[1]}`;
  await raw.close();
  return { list, part };
};

describe('a store with an unreadable record', () => {
  it.each(['garbage', '{}', 'null', '[null]'])(
    'the store opens if any one record is replaced by the text %s, and returns the active policy',
    async (text) => {
      const dataDir = join(temporaryFolder(), 'data');
      await committed(dataDir);
      const folder = join(dataDir, 'store');
      const raw = await openRocksDbStore(folder);
      const keys = [
        'token/t',
        'integration/k',
        'setting/performance_mode',
        'history/a/000000000009',
        'kubernetes/k/complete',
      ];
      for await (const [key] of raw.iterate({ gte: '', lt: '~' })) keys.push(key);
      await raw.close();
      for (const key of keys) {
        const kv = await openRocksDbStore(folder);
        const before = await kv.get(key);
        await kv.put(key, Buffer.from(text), { sync: false });
        await kv.close();
        await withStore(dataDir, async ({ policies, tokens, integrations, settings, kubernetesObjects }) => {
          expect([key, await policies.active(), await policies.generation()]).toEqual([key, second, 2]);
          expect([await tokens.list(), await integrations.list()]).toEqual([[], []]);
          expect(await settings.get(RECORDS.performanceMode)).toBeNull();
          await kubernetesObjects.read();
          expect((await policies.history('a')).length).toBeGreaterThan(0);
        });
        const mended = await openRocksDbStore(folder);
        if (before === null) await mended.delete(key, { sync: false });
        else await mended.put(key, before, { sync: false });
        await mended.close();
      }
    },
  );
});

describe('the store of a node', () => {
  it('the store of a node has all data after it is closed and opened again, in files that only the owner can read', async () => {
    const dataDir = join(temporaryFolder(), 'data');
    await committed(dataDir);
    await withStore(dataDir, async ({ settings, integrations }) => {
      await settings.put(RECORDS.performanceMode, MODE);
      await integrations.put(
        { name: 'k', kind: 'kubernetes', api_server_url: 'https://k', ca_cert_pem: 'c', service_account_token: 't' },
        'ops',
      );
    });
    await withStore(dataDir, async ({ policies, settings, integrations }, findings) => {
      expect(findings).toEqual([]);
      expect(await policies.active()).toEqual(second);
      const facts = { bytes: expect.any(Number), generation: 1 };
      expect(await policies.revision('a', 1)).toEqual({ ...first, record: { ...first.record, active: false, facts } });
      expect(await settings.get(RECORDS.performanceMode)).toEqual(MODE);
      expect((await integrations.list()).map(({ name }) => name)).toEqual(['k']);
    });
    const modes = ['.', 'store', 'last-good.policy'].map((name) => statSync(join(dataDir, name)).mode & 0o777);
    expect(modes).toEqual([0o700, 0o700, 0o600]);
    expect(readdirSync(dataDir).sort()).toEqual(['last-good.policy', 'store']);
  });

  it('the store of a node renames a database folder that cannot be opened, and restores the active policy from the last-good copy (file beside the database)', async () => {
    const dataDir = temporaryFolder();
    await committed(dataDir);
    writeFileSync(join(dataDir, 'store', 'CURRENT'), 'nonsense');
    expect(await inForce(dataDir)).toEqual({
      findings: ['store_quarantined', 'head_damaged'],
      generation: 2,
      active: second,
    });
    expect(readdirSync(dataDir).filter((name) => name.startsWith('store.damaged-')).length).toBe(1);
    expect(await inForce(dataDir)).toEqual({ findings: [], generation: 2, active: second });
  });

  it('the store restores the active policy from the last-good copy (file beside the database) if the database folder was deleted or lost its newest commits', async () => {
    const dataDir = temporaryFolder();
    await withStore(dataDir, ({ policies }) => policies.commit({ put: first, generation: 1 }));
    const older = temporaryFolder();
    rmSync(older, { recursive: true });
    cpSync(join(dataDir, 'store'), older, { recursive: true });
    await withStore(dataDir, ({ policies }) => policies.commit({ put: second, generation: 2 }));

    rmSync(join(dataDir, 'store'), { recursive: true });
    cpSync(older, join(dataDir, 'store'), { recursive: true });
    expect(await inForce(dataDir)).toEqual({ findings: ['store_behind'], generation: 2, active: second });
    expect(await inForce(dataDir)).toEqual({ findings: [], generation: 2, active: second });

    rmSync(join(dataDir, 'store'), { recursive: true });
    expect(await inForce(dataDir)).toEqual({ findings: ['head_damaged'], generation: 2, active: second });
  });

  it.each(['policy/a', 'head', 'list', 'part'])(
    'the store restores the active policy from the last-good copy (file beside the database) if the database entry %s is damaged',
    async (what) => {
      const dataDir = temporaryFolder();
      await committed(dataDir);
      await damage(dataDir, what === 'list' || what === 'part' ? (await bodyKeysOf(dataDir))[what] : what);
      const { findings, ...rest } = await inForce(dataDir);
      expect(rest).toEqual({ generation: 2, active: second });
      expect(findings).toEqual(
        { 'policy/a': ['record_damaged', 'active_damaged'], head: ['head_damaged'] }[what] ?? ['active_damaged'],
      );
      expect(await inForce(dataDir)).toEqual({ findings: [], generation: 2, active: second });
    },
  );

  it('the store returns store_damaged, not an older policy, if the active policy and its last-good copy (file beside the database) are unusable', async () => {
    const dataDir = temporaryFolder();
    await withStore(dataDir, ({ policies }) => policies.commit({ put: first, generation: 1 }));
    const copy = readFileSync(join(dataDir, 'last-good.policy'));
    await withStore(dataDir, ({ policies }) => policies.commit({ put: second, generation: 2 }));
    await damage(dataDir, (await bodyKeysOf(dataDir)).part);
    for (const content of [copy, Buffer.from('damaged too')]) {
      writeFileSync(join(dataDir, 'last-good.policy'), content);
      expect(await inForce(dataDir)).toEqual({ findings: ['active_lost'], generation: 2, active: 'store_damaged' });
    }
    const third = storedPolicy({ id: 'a', name: 'edge', revision: 3 }, '{}');
    await withStore(dataDir, ({ policies }) => policies.commit({ put: third, generation: 3 }));
    expect(await inForce(dataDir)).toEqual({ findings: [], generation: 3, active: third });
  });

  it('the store returns the active policy, not an older one, if one database file is damaged at a random place, cut off or deleted', async () => {
    const origin = temporaryFolder();
    await committed(origin);
    const random = new Random(seedOf(Date.now()));
    const files = readdirSync(join(origin, 'store')).filter((name) => name !== 'LOCK' && name !== 'LOG');
    for (let image = 0; image < 60; image++) {
      const dataDir = join(temporaryFolder(), 'data');
      cpSync(origin, dataDir, { recursive: true });
      const file = join(dataDir, 'store', files[image % files.length] ?? '');
      const content = readFileSync(file);
      const at = random.below(content.length);
      const kind = Math.floor(image / files.length) % 3;
      if (kind === 0)
        for (let byte = at; byte < Math.min(at + 64, content.length); byte++) content[byte] = random.below(256);
      if (kind === 2) rmSync(file);
      else writeFileSync(file, kind === 1 ? content.subarray(0, at) : content);
      const { generation, active } = await inForce(dataDir);
      expect({ generation, active }, `seed ${random.seed}, image ${image}: ${file}`).toEqual({
        generation: 2,
        active: second,
      });
    }
  });

  /**
   * Returns a data folder with two tables, and calls `use` with copies of it in which one byte of a table is
   * changed. The first table has the policies, and the second has a token.
   */
  async function withEachTableByteDamaged(use: (dataDir: string, table: number) => Promise<void>): Promise<void> {
    const origin = temporaryFolder();
    await committed(origin);
    const token = {
      id: 't',
      subject: 'ci',
      role: 'admin',
      created_at: '',
      expires_at: null,
      revoked_at: null,
    } as const;
    // Each opening moves the log of the database to a table.
    await withStore(origin, ({ tokens }) => tokens.put(token));
    await withStore(origin, async () => {});
    const tables = readdirSync(join(origin, 'store'))
      .filter((name) => name.endsWith('.sst'))
      .sort();
    expect(tables).toHaveLength(2);
    for (const [table, name] of tables.entries()) {
      const content = readFileSync(join(origin, 'store', name));
      for (let at = 0; at < content.length; at += 89) {
        const dataDir = join(temporaryFolder(), 'data');
        cpSync(origin, dataDir, { recursive: true });
        const damaged = Buffer.from(content);
        damaged[at] = (damaged[at] ?? 0) ^ 0x55;
        writeFileSync(join(dataDir, 'store', name), damaged);
        await use(dataDir, table);
      }
    }
  }

  it('the store moves a database with a damaged table aside, and restores the active policy from the last-good copy (file beside the database)', async () => {
    const moved = [0, 0];
    await withEachTableByteDamaged(async (dataDir, table) => {
      const { findings, ...policy } = await inForce(dataDir);
      expect(policy).toEqual({ generation: 2, active: second });
      expect([[], ['head_damaged'], ['store_quarantined', 'head_damaged']]).toContainEqual(findings);
      if (findings.includes('store_quarantined')) moved[table] = (moved[table] ?? 0) + 1;
      await withStore(dataDir, ({ tokens }) => tokens.list());
    });
    expect(Math.min(...moved)).toBeGreaterThan(0);
  });

  it('the store refuses to open a database with a damaged table if the last-good copy of the active policy (file beside the database) is older', async () => {
    const older = temporaryFolder();
    await withStore(older, ({ policies }) => policies.commit({ put: first, generation: 1 }));
    const copy = readFileSync(join(older, 'last-good.policy'));
    let refused = 0;
    await withEachTableByteDamaged(async (dataDir) => {
      writeFileSync(join(dataDir, 'last-good.policy'), copy);
      // Damage at other bytes already makes the opening of RocksDB fail, so that the head cannot be read.
      const database = await RocksDb.open(join(dataDir, 'store'), true).catch(() => null);
      const head = await database?.getMany([Buffer.from('head')]).catch(() => undefined);
      await database?.close();
      const opened = await inForce(dataDir).catch(({ code }: StoreError) => ({ code, generation: 2 }));
      if ('code' in opened && opened.code === 'store_damaged') refused += 1;
      if (head !== undefined) expect(opened.generation).toBe(2);
    });
    expect(refused).toBeGreaterThan(0);
  });

  it('the store reports a damaged inactive policy as a finding, and returns all other policies', async () => {
    const dataDir = temporaryFolder();
    const other = storedPolicy({ id: 'b', active: false }, '{}');
    await withStore(dataDir, async ({ policies }) => {
      await policies.commit({ put: first, generation: 1 });
      await policies.commit({ put: other, generation: 1 });
      await policies.commit({ put: storedPolicy({ id: 'c', active: false }, '{}'), generation: 1 });
    });
    await damage(dataDir, 'policy/b');
    await withStore(dataDir, async ({ policies }, findings) => {
      expect(findings).toEqual(['record_damaged']);
      expect((await policies.list()).map(({ id }) => id)).toEqual(['a', 'c']);
      expect(await policies.get('b').catch((error: StoreError) => error.code)).toBe('store_damaged');
      await policies.commit({ remove: 'b', generation: 1 });
      expect(await policies.get('b')).toBeNull();
    });
  });

  it('the store reports a damaged token, integration and setting, treats these records as absent, and replaces them', async () => {
    const dataDir = temporaryFolder();
    const names = ['x', 'y'];
    const integration = {
      kind: 'kubernetes',
      api_server_url: 'https://k',
      ca_cert_pem: '',
      service_account_token: 't',
    } as const;
    const issue = async (authority: Authority) => authority.issue({ subject: 'ci', role: 'admin', expiresInMs: null });
    const [intact, damaged, revoked] = await withStore(dataDir, async ({ tokens, integrations, settings }) => {
      for (const name of names) await integrations.put({ ...integration, name }, 'ops');
      await settings.put(RECORDS.performanceMode, MODE);
      const authority = await createAuthority(tokens, dataDir);
      const issued = [await issue(authority), await issue(authority), await issue(authority)] as const;
      await authority.revoke(issued[2].record.id);
      return issued;
    });
    for (const { record } of [damaged, revoked]) await damage(dataDir, `token/${record.id}`);
    for (const key of ['integration/x', 'setting/performance_mode']) await damage(dataDir, key);

    await withStore(dataDir, async ({ tokens, integrations, settings }, findings) => {
      const authority = await createAuthority(tokens, dataDir);
      const verdicts = [intact, damaged, revoked].map(async ({ token }) => (await authority.verify(token)).kind);
      expect(await Promise.all(verdicts)).toEqual(['accepted', 'refused', 'refused']);
      expect(findings).toEqual(['record_damaged', 'record_damaged']);
      for (let time = 0; time < 2; time++) expect((await integrations.list()).map(({ name }) => name)).toEqual(['y']);
      expect([await integrations.get('x'), await integrations.remove('x')]).toEqual([null, false]);
      expect((await integrations.put({ ...integration, name: 'x' }, 'ops', 0)).revision).toBe(1);
      expect((await integrations.list()).map(({ name }) => name)).toEqual(names);
      expect(findings).toEqual(['record_damaged', 'record_damaged', 'record_damaged']);
      const again = { ...MODE, revision: 2 };
      expect(await settings.update(RECORDS.performanceMode, undefined, (stored) => stored ?? again)).toEqual(again);
      expect(await settings.get(RECORDS.performanceMode)).toEqual(again);
    });
  });

  it('the store commits although the last-good copy of the active policy (file beside the database) cannot be written, and writes it when it is opened next', async () => {
    const dataDir = temporaryFolder();
    await withStore(dataDir, async ({ policies }, findings) => {
      mkdirSync(join(dataDir, 'last-good.policy.new'));
      await policies.commit({ put: first, generation: 1 }).finally(() => {
        rmSync(join(dataDir, 'last-good.policy.new'), { recursive: true, force: true });
      });
      expect(findings).toEqual(['last_good_unwritable']);
      expect(await policies.active()).toEqual(first);
    });
    expect(existsSync(join(dataDir, 'last-good.policy'))).toBe(false);
    expect(await inForce(dataDir)).toEqual({ findings: [], generation: 1, active: first });
    expect(existsSync(join(dataDir, 'last-good.policy'))).toBe(true);
  });

  it('the store refuses a data folder that another store has open', async () => {
    const dataDir = temporaryFolder();
    await withStore(dataDir, async () => {
      expect(await openStore(dataDir, () => {}).catch((error: StoreError) => error.code)).toBe('store_locked');
    });
  });
});
