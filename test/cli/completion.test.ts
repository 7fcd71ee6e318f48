import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { everyCommand, shapeOf } from '#cli/command-shape.js';
import { commandTree } from '#cli/command-tree.js';
import { processTerminal } from '#cli/terminal.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { run } from './rig.js';

const commands = everyCommand(shapeOf(commandTree(processTerminal, () => {})));
const script = async (shell: string) => (await run(['completion', shell])).out;

/** What bash offers for the last of these words, in this folder. */
async function offers(words: readonly string[], cwd = '/'): Promise<string[]> {
  const asking = `${await script('bash')}
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _weir; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr, status } = spawnSync('bash', ['--norc', '-c', asking, 'bash', ...words], {
    cwd,
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([0, '']);
  return stdout.split('\n').filter((line) => line !== '');
}

describe('completion in bash', () => {
  it.each(commands.map(({ path, commands: below, options }) => [path, below, options] as const))(
    'offers all that stands below %s, and its flags',
    async (path, below, options) => {
      const offered = await offers([...path.split(' '), '']);
      expect(offered).toEqual(expect.arrayContaining(below.map(({ name }) => name)));
      expect(await offers([...path.split(' '), '--'])).toEqual(options.flatMap(({ names }) => names.slice(-1)));
    },
  );

  it.each([
    [['weir', 'pol'], ['policy']],
    [
      ['weir', 'policy', 'd'],
      ['diff', 'delete'],
    ],
    [
      ['weir', 'policy', 'apply', '--mode', ''],
      ['disabled', 'audit', 'enforce'],
    ],
    [['weir', 'policy', 'get', '--output', 'y'], ['yaml']],
    [['weir', 'policy', 'apply', '--name', ''], []],
    [
      ['weir', 'performance-mode', 'o'],
      ['on', 'off'],
    ],
    [['weir', 'completion', 'f'], ['fish']],
    [['weir', 'flows', '--src', 'list', '--outp'], ['--output']],
  ])('offers for %j %j', async (words, offered) => {
    expect(await offers(words)).toEqual(offered);
  });

  it('offers files where a file is wanted, with blanks in their names too', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'my policy.yaml'), '');
    mkdirSync(join(folder, 'other'));
    expect(await offers(['weir', 'policy', 'apply', '-f', 'my'], folder)).toEqual(['my policy.yaml']);
    expect(await offers(['weir', 'config', 'check', 'ot'], folder)).toEqual(['other']);
  });

  it('completes what is typed at a prompt', async () => {
    const file = join(temporaryFolder(), 'completion');
    writeFileSync(file, `${await script('bash')}\nweir() { printf 'called with <%s>\\n' "$*"; }\n`);
    const shell = spawn('script', ['-qec', 'bash --norc --noprofile -i', '/dev/null'], { stdio: 'pipe' });
    onTestFinished(() => void shell.kill('SIGKILL'));
    let screen = '';
    shell.stdout.setEncoding('utf8').on('data', (text: string) => {
      screen += text;
    });
    shell.stdin.write(`source ${file} && echo sour''ced\n`);
    await expect.poll(() => screen).toContain('sourced');
    shell.stdin.write('weir pol\tli\t--outp\tj\t\n');
    await expect.poll(() => screen, { timeout: 5_000 }).toContain('called with <policy list --output json>');
    shell.stdin.end('exit\n');
  });
});

describe('completion in other shells', () => {
  it.each(['zsh', 'fish'])('%s knows every command and every flag', async (shell) => {
    const text = await script(shell);
    for (const { path, options } of commands) {
      expect(text).toContain(path);
      for (const { names } of options) expect(text).toContain(names.at(-1)?.replace(/^--/, '') ?? '');
    }
  });

  it('there is none for a shell that is not known', async () => {
    expect((await run(['completion', 'tcsh'])).code).toBe(2);
  });
});
