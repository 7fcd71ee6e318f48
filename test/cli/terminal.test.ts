import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { serverThatAnswers } from './cli-run.js';

const program = fileURLToPath(new URL('../../bin/weir.js', import.meta.url));
const record = {
  ...{ id: 'p-1', name: 'office', form: 'envelope', mode: 'enforce', revision: 3 },
  ...{ updated_at: '2026-02-01T08:30:00.000Z', updated_by: 'alice', active: true },
};
const GREEN = '\u001b[32mactive\u001b[39m';

function start(command: string, words: readonly string[], environment: Record<string, string> = {}) {
  const { NO_COLOR: _, FORCE_COLOR: __, ...inherited } = process.env;
  const child = spawn(command, words, { env: { ...inherited, TERM: 'xterm', WEIR_TOKEN: 't', ...environment } });
  onTestFinished(() => void child.kill('SIGKILL'));
  const said = { out: '', err: '' };
  child.stdout.on('data', (chunk) => {
    said.out += String(chunk);
  });
  child.stderr.on('data', (chunk) => {
    said.err += String(chunk);
  });
  const ending = once(child, 'close').then(([code]) => ({ code, ...said }));
  return { child, ending };
}

it('`weir` prints colours only on a terminal, and no colours if NO_COLOR is set or if TERM is dumb', async () => {
  const { url } = await serverThatAnswers({ status: 200, body: { items: [record] } });
  const onTerminal = ['-qec', `${process.execPath} ${program} policy list --server ${url}`, '/dev/null'];
  expect((await start('script', onTerminal).ending).out).toContain(GREEN);
  const plain = [
    await start('script', onTerminal, { NO_COLOR: '1' }).ending,
    await start('script', onTerminal, { TERM: 'dumb' }).ending,
    await start(process.execPath, [program, 'policy', 'list', '--server', url]).ending,
  ];
  expect(plain.map(({ out }) => [out.includes('office'), out.includes('\u001b[')])).toEqual([
    [true, false],
    [true, false],
    [true, false],
  ]);
});

it('`weir policy apply -f -` reads the policy from standard input', async () => {
  const { url, asked } = await serverThatAnswers({ status: 400, body: { error: 'No.' } });
  const { child, ending } = start(process.execPath, [
    program,
    'policy',
    'apply',
    '--replace',
    '-f',
    '-',
    '--server',
    url,
  ]);
  child.stdin.write('{"default_');
  child.stdin.end('policy":"deny"}');
  expect(await ending).toEqual({ code: 1, out: '', err: 'weir: No.\n' });
  expect(asked.map(({ body }) => body)).toEqual(['{"default_policy":"deny"}']);
});

it('`weir` exits with 0 and prints no error if the reader closes the output pipe', async () => {
  const items = Array.from({ length: 5_000 }, () => record);
  const { url } = await serverThatAnswers({ status: 200, body: { items } });
  const { child, ending } = start(process.execPath, [program, 'policy', 'list', '--server', url]);
  child.stdout.destroy();
  expect(await ending).toEqual({ code: 0, out: '', err: '' });
});

it.each([
  ['y\r', 0, ['GET', 'PUT']],
  ['n\r', 1, ['GET']],
  ['\x04', 1, ['GET']],
  ['\x03', 1, ['GET']],
])(
  '`weir policy apply` asks the user before it replaces another policy, and the input %j leads to exit code %i',
  async (typed, code, methods) => {
    const written = { ...record, id: 'p-2', name: 'home', warnings: [], proof: null };
    const headers = { etag: '"p-2.3"', 'weir-generation': '8' };
    const { url, asked } = await serverThatAnswers(
      { status: 200, body: { items: [record] } },
      { status: 200, body: written, headers },
    );
    const file = join(temporaryFolder(), 'home.json');
    writeFileSync(file, JSON.stringify({ mode: 'enforce', name: 'home', policy: {} }));
    const command = `exec '${process.execPath}' '${program}' policy apply -f '${file}' --server ${url}`;
    const { child, ending } = start('script', ['-qec', command, '/dev/null']);
    const screen = new Promise<void>((resolve) => {
      let seen = '';
      child.stdout.on('data', (chunk) => {
        seen += String(chunk);
        if (seen.includes('[y/N]')) resolve();
      });
    });
    await screen;
    child.stdin.write(typed);
    expect((await ending).code).toBe(code);
    expect(asked.map(({ method }) => method)).toEqual(methods);
  },
);

it('`weir` warns of a version of Node.js that package.json does not name', async () => {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'bin'));
  copyFileSync(program, join(folder, 'bin', 'weir.js'));
  symlinkSync(join(dirname(program), '..', 'dist'), join(folder, 'dist'));
  const [major = 0, minor = 0, patch = 0] = process.versions.node.split('.').map(Number);
  const errorsWith = async (node: string): Promise<string> => {
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ type: 'module', engines: { node } }));
    const { code, err } = await start(process.execPath, [join(folder, 'bin', 'weir.js'), '--version']).ending;
    expect(code).toBe(0);
    return err;
  };
  const own = `${major}.${minor}.${patch}`;
  for (const later of [
    `^${major}.${minor}.${patch + 1}`,
    `^${major}.${minor + 1}.0`,
    `^${major - 1}.0.0 || ^${major + 1}.0.0`,
  ])
    expect(await errorsWith(later)).toBe(
      `weir: Node.js ${own} is not supported: this version of Weir is tested with ${later}\n`,
    );
  expect(await errorsWith(`^1.0.0 || ^${own}`)).toBe('');
});
