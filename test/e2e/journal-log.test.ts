import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, onTestFinished, test } from 'vitest';
import { weirCommand } from '#cli/tour/node-process.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

const OF_STANDARD_OUTPUT = '$(stat -L -c %d:%i /proc/$$/fd/1)';

/** Starts a node without a dataplane, and returns the first line of its log. */
async function firstLine(log: object, journalStream: string): Promise<string> {
  const folder = temporaryFolder();
  const config = join(folder, 'weir.yaml');
  const api = { listen: '127.0.0.1:0' };
  writeFileSync(config, JSON.stringify({ version: 1, node: { id: 'gw', data_dir: join(folder, 'data') }, api, log }));
  const script = `JOURNAL_STREAM=${journalStream}; export JOURNAL_STREAM; exec "$@"`;
  const child = spawn('sh', ['-c', script, 'sh', ...weirCommand, 'run', '--config', config], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'close');
  onTestFinished(() => void child.kill('SIGKILL'));
  const [line] = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), ended]);
  child.kill('SIGTERM');
  await ended;
  return String(line);
}

test('a node logs text with priorities if its standard output goes to the journal', async () => {
  expect(await firstLine({}, OF_STANDARD_OUTPUT)).toMatch(/^<[46]>\w/);
});

test.each([
  ['the journal does not read its standard output', {}, '1:2'],
  ['log.format is json', { format: 'json' }, OF_STANDARD_OUTPUT],
])(
  'a node logs JSON, not text with priorities, if its log is not for the journal or JSON is configured: %s',
  async (_, log, stream) => {
    expect(JSON.parse(await firstLine(log, stream))).toMatchObject({ node: 'gw' });
  },
);
