import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { weirCommand } from '#cli/tour/node-process.js';
import { freePort } from '#test/sockets/free-port.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

const ISO_TIME = '\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z';

/** Starts a node, and returns the beginning of its standard output until the API listens. */
async function logOf(format: string, isTerminal: boolean): Promise<string> {
  const folder = temporaryFolder();
  const config = join(folder, 'weir.yaml');
  const settings = `log: { format: ${format} }\napi: { listen: "127.0.0.1:${await freePort()}" }\n`;
  writeFileSync(config, `version: 1\nnode: { data_dir: ${folder} }\n${settings}`);
  const command = ['exec', ...weirCommand, 'run', '--config', config].join(' ');
  const [program, words] = isTerminal ? ['script', ['-qec', command, '/dev/null']] : ['sh', ['-c', command]];
  const environment = { ...process.env, NO_COLOR: '1', JOURNAL_STREAM: undefined };
  const child = spawn(program, words, { env: environment, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  onTestFinished(async () => {
    child.kill('SIGTERM');
    await ended;
  });
  let text = '';
  for await (const chunk of child.stdout) {
    text += String(chunk);
    if (text.includes('the API listens')) break;
  }
  return text;
}

test.each(['auto', 'pretty'])(
  'the log of a node with log.format %s is text with ISO 8601 time on a terminal',
  async (format) => {
    const [first] = (await logOf(format, true)).split('\r\n');
    expect(first).toMatch(new RegExp(`^\\[${ISO_TIME}\\] INFO: opening the store \\{"bytes":0\\}$`));
  },
);

test.each([
  ['auto', false],
  ['json', false],
  ['json', true],
])('the log of a node with log.format %s is JSON with ISO 8601 time (terminal: %s)', async (format, isTerminal) => {
  const [first = ''] = (await logOf(format, isTerminal)).split(/\r?\n/);
  expect(JSON.parse(first)).toEqual({
    level: 30,
    time: expect.stringMatching(new RegExp(`^${ISO_TIME}$`)),
    node: expect.any(String),
    bytes: 0,
    msg: 'opening the store',
  });
});
