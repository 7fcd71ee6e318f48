import { chmodSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { replaceFile } from '#cli/init/init-files.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

test('`replaceFile` makes a missing folder with the mode 755 for any umask, and keeps the mode of an existing folder', () => {
  const umask = process.umask(0o077);
  onTestFinished(() => void process.umask(umask));
  const [made, present] = [join(temporaryFolder(), 'weir'), join(temporaryFolder(), 'kept')];
  mkdirSync(present);
  chmodSync(present, 0o700);
  for (const folder of [made, present]) replaceFile(join(folder, 'weir.yaml'), 'node: {}\n', 0);
  const modes = [made, join(made, 'weir.yaml'), present].map((path) => (statSync(path).mode & 0o777).toString(8));
  expect(modes).toEqual(['755', '640', '700']);
  expect(readFileSync(join(made, 'weir.yaml'), 'utf8')).toBe('node: {}\n');
});
