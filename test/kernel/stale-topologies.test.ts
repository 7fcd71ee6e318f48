import { spawnSync } from 'node:child_process';
import { chownSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { createTopology } from '#cli/tour/topology.js';

test('`createTopology` removes the folders of ended processes, except those of other users', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'weir-stale-'));
  const { pid } = spawnSync('true');
  const [own, other] = [`weir-${pid}-own`, `weir-${pid}-other`];
  mkdirSync(join(folder, own));
  mkdirSync(join(folder, other));
  chownSync(join(folder, other), 65_534, 65_534);
  vi.stubEnv('TMPDIR', folder);
  try {
    await (await createTopology('stale')).remove();
    expect(readdirSync(folder)).toEqual([other]);
  } finally {
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true });
  }
});
