import { execFileSync } from 'node:child_process';
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { run, serverThatAnswers } from './cli-run.js';

describe('the admin.token of a node', () => {
  it.each<[string, (path: string, other: string) => void, string]>([
    ['a symbolic link', (path, other) => symlinkSync(other, path), 'too many symbolic links encountered'],
    ['a FIFO', (path) => execFileSync('mkfifo', [path]), 'is a FIFO, not a regular file'],
  ])(
    'a command does not read the file admin.token of a node if the user of the node has replaced this file by %s',
    async (_, make, reason) => {
      const { url, asked } = await serverThatAnswers({ status: 200, body: { items: [] } });
      const folder = temporaryFolder();
      writeFileSync(join(folder, 'other'), 'secret');
      make(join(folder, 'admin.token'), join(folder, 'other'));
      const file = join(folder, 'weir.yaml');
      writeFileSync(file, JSON.stringify({ version: 1, node: { data_dir: folder } }));
      const { code, err } = await run(['token', 'list', '--config', file, '--server', url]);
      expect(code).toBe(1);
      expect(err).toMatch(new RegExp(`^weir: there is no token: ${folder}/admin[.]token cannot be read: .*${reason}`));
      expect(asked).toEqual([]);
    },
  );

  it('the file that --token-file names may be a symbolic link', async () => {
    const { url, asked } = await serverThatAnswers({ status: 200, body: { items: [] } });
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'token'), 'secret');
    symlinkSync('token', join(folder, 'link'));
    await run(['token', 'list', '--token-file', join(folder, 'link'), '--server', url]);
    expect(asked.map(({ authorization }) => authorization)).toEqual(['Bearer secret']);
  });
});
