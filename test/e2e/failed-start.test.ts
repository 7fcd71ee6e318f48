import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { weirCommand } from '#cli/tour/node-process.js';
import { HANGING_MS } from '#test/eventually.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

const repository = fileURLToPath(new URL('../..', import.meta.url));

it('if the API of a node cannot start, all threads of the node end and the process exits', async () => {
  const folder = temporaryFolder();
  const config = join(folder, 'weir.yaml');
  writeFileSync(config, JSON.stringify({ version: 1, node: { data_dir: join(folder, 'data') } }));
  // The program sets missing TLS files in the configuration after the check of the configuration, as if
  // someone had deleted the files in between.
  const program = `
    import { readConfig } from '#config/load.js';
    import { run } from '#main.js';
    const read = readConfig(${JSON.stringify(config)});
    const tls = { cert: '/no/cert.pem', key: '/no/key.pem' };
    const { config } = read;
    await run({ ...read, config: { ...config, api: { ...config.api, tls } } }).catch(({ message }) => console.error(message));
  `;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { cwd: repository });
  onTestFinished(() => void child.kill('SIGKILL'));
  let told = '';
  child.stderr.on('data', (chunk) => (told += String(chunk)));
  child.stdout.resume();
  const [code] = await Promise.race([
    once(child, 'close'),
    new Promise<readonly string[]>((resolve) => setTimeout(resolve, HANGING_MS, ['it goes on'])),
  ]);
  expect([code, told]).toEqual([0, '/no/cert.pem: no such file or directory\n']);
});

it('a node without CAP_NET_BIND_SERVICE for its API port ends with an error that names the capability', () => {
  const folder = temporaryFolder();
  const config = join(folder, 'weir.yaml');
  const node = { data_dir: join(folder, 'data') };
  writeFileSync(
    config,
    JSON.stringify({ version: 1, node, api: { listen: '127.0.0.1:83' }, log: { level: 'silent' } }),
  );
  const words = [...weirCommand, 'run', '--config', config];
  const without = ['--bounding-set', '-net_bind_service', '--inh-caps', '-net_bind_service'];
  const { status, stdout, stderr } = spawnSync('setpriv', [...without, ...words], {
    encoding: 'utf8',
    timeout: HANGING_MS,
  });
  expect([status, stdout, stderr]).toEqual([
    1,
    '',
    'weir: the API cannot listen on 127.0.0.1:83: permission denied\n' +
      '  → grant CAP_NET_BIND_SERVICE for ports below 1024, or change api.listen\n',
  ]);
});

it('if the store cannot be opened, the threads of the service plane end and the process exits', () => {
  const folder = temporaryFolder();
  const config = join(folder, 'weir.yaml');
  const dataDir = join(folder, 'data');
  mkdirSync(dataDir, { mode: 0o700 });
  writeFileSync(join(dataDir, 'store'), 'no folder');
  writeFileSync(config, JSON.stringify({ version: 1, node: { data_dir: dataDir }, service_plane: { workers: 2 } }));
  const [command, ...words] = weirCommand;
  const { status, stderr } = spawnSync(command, [...words, 'run', '--config', config], {
    encoding: 'utf8',
    timeout: HANGING_MS,
  });
  expect([status, stderr]).toEqual([1, expect.stringContaining(`open the store in ${dataDir}/store: EEXIST`)]);
});
