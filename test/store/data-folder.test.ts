import { chmodSync, chownSync, lchownSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { openStore } from '#store/store.js';
import type { StoreError } from '#store/store-error.js';
import type { StoreFinding } from '#store/store-finding.js';
import { temporaryFolder } from './temporary-folder.js';

const STRANGER = 65_534;

type Opened = { readonly failed: string | null; readonly findings: readonly StoreFinding[] };
async function open(dataDir: string): Promise<Opened> {
  const findings: StoreFinding[] = [];
  try {
    const store = await openStore(dataDir, (finding) => findings.push(finding));
    await store.close();
    return { failed: null, findings };
  } catch (failure) {
    const { code, message } = failure as StoreError;
    return { failed: code === 'data_dir_exposed' ? message : `${code}: ${message}`, findings };
  }
}

/** Creates `top/data`, a data folder with mode 0755 that a store has used before. */
async function used(): Promise<{ readonly top: string; readonly data: string }> {
  const top = join(temporaryFolder(), 'top');
  mkdirSync(top, { mode: 0o755 });
  const data = join(top, 'data');
  expect(await open(data)).toEqual({ failed: null, findings: [] });
  chmodSync(data, 0o755);
  return { top, data };
}

type Folders = { readonly top: string; readonly data: string };
const PLACES = [
  ['the data folder', ({ data }: Folders) => data],
  ['the folder above', ({ top }: Folders) => top],
  ['a file of the store', ({ data }: Folders) => join(data, 'store', 'CURRENT')],
] as const;

describe('the data folder of a node', () => {
  test('the data folder of a node is opened if the data folder and all folders above belong to this user or to root', async () => {
    const { data } = await used();
    expect(await open(data)).toEqual({ failed: null, findings: [] });
  });

  test.each([...PLACES, ['the store folder in the data folder', ({ data }: Folders) => join(data, 'store')]] as const)(
    'the data folder of a node is refused if every user can write to %s',
    async (_, placeOf) => {
      const place = await used();
      const path = placeOf(place);
      chmodSync(path, 0o777);
      const { failed } = await open(place.data);
      expect(failed).toContain(`every user can write to ${path}`);
      expect(failed).toContain(`run chmod o-w ${path}`);
      chmodSync(path, 0o755);
      expect(await open(place.data)).toEqual({ failed: null, findings: [] });
    },
  );

  test('the data folder of a node is refused if every user can write to the folder, even if the folder has the sticky bit', async () => {
    const { data } = await used();
    chmodSync(data, 0o1777);
    expect((await open(data)).failed).toContain(`every user can write to ${data}`);
  });

  test.each([...PLACES, ['a file in the data folder', ({ data }: Folders) => join(data, 'token.key')]] as const)(
    'the data folder of a node is refused if %s belongs to another user',
    async (_, placeOf) => {
      const place = await used();
      writeFileSync(join(place.data, 'token.key'), '');
      const path = placeOf(place);
      chownSync(path, STRANGER, 0);
      const { failed } = await open(place.data);
      expect(failed).toContain(`${path} belongs to the user ${STRANGER}`);
    },
  );

  test('the data folder is refused if a symlink to it belongs to another user, or if a folder on its path is writable for everyone', async () => {
    const { top, data } = await used();
    const folder = temporaryFolder();
    const link = join(folder, 'link');
    symlinkSync(data, link);
    expect(await open(link)).toEqual({ failed: null, findings: [] });
    chmodSync(top, 0o777);
    expect((await open(link)).failed).toContain(`every user can write to ${top}`);
    chmodSync(top, 0o755);
    lchownSync(link, STRANGER, 0);
    expect((await open(link)).failed).toContain(`${link} belongs to the user ${STRANGER}`);
  });

  test('the data folder of a node is opened although everyone can write to a file in it, if other users cannot enter the folder', async () => {
    const { data } = await used();
    chmodSync(join(data, 'store', 'CURRENT'), 0o666);
    chmodSync(data, 0o700);
    expect(await open(data)).toEqual({ failed: null, findings: [] });
  });

  test('the data folder of a node is opened with one finding if the group of the folder can write to the folder', async () => {
    const { top, data } = await used();
    chmodSync(data, 0o770);
    chmodSync(top, 0o775);
    const { failed, findings } = await open(data);
    expect(failed).toBe(null);
    expect(findings.map(({ code }) => code)).toEqual(['data_dir_shared']);
    expect(findings[0]?.message).toContain(`the group of ${top} can write to it, and to 1 more places`);
  });

  test('a data folder that cannot be created is named in an error, with the error text of the system', async () => {
    const file = join(temporaryFolder(), 'file');
    writeFileSync(file, '');
    expect(await open(join(file, 'data'))).toEqual({
      failed: `store_unavailable: make the data folder ${file}/data: ${file}/data: not a directory`,
      findings: [],
    });
  });
});
