import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { FLOW_STATES, FLOW_VERDICTS } from '#api/traffic/flows.schema.js';
import { everyCommand, shapeOf } from '#cli/command-shape.js';
import { commandTree } from '#cli/command-tree.js';
import { flagsOfNode, quoted } from '#cli/completion/candidates.js';
import { completed } from '#cli/completion/completed.js';
import { KNOWN_VALUES } from '#cli/completion/values.js';
import { processTerminal } from '#cli/output/terminal.js';
import { LINT_CHECKS } from '#contracts/analysis/policy-lint.js';
import { FINDING_TYPES } from '#observe/findings/finding.js';
import { WIRETAP_TYPES, WIRETAP_VERDICTS } from '#observe/wiretap/wiretap-filter.js';
import { ProgressClock } from '#test/progress-clock.js';
import { skipUnless } from '#test/skip-unless.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { type Answer, run, serverThatAnswers } from './cli-run.js';

const tree = shapeOf(commandTree(processTerminal, () => {}));
const commands = everyCommand(tree);
const script = async (shell: string) => (await run(['completion', shell])).out;

const isInstalled = (shell: string): boolean => spawnSync(shell, ['--version']).status === 0;

/** Returns the completions that bash offers for the last of `words`, with `cwd` as the current folder. */
async function offers(words: readonly string[], cwd = '/', line = words.join(' ')): Promise<string[]> {
  const asking = `${await script('bash')}
COMP_LINE=${quoted(line)}; COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _weir; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr, status } = spawnSync('bash', ['--norc', '-c', asking, 'bash', ...words], {
    cwd,
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([0, '']);
  return stdout.split('\n').filter((line) => line !== '');
}

describe('bash completion', () => {
  it.each(completed(tree).map(({ path, commands: below, options }) => [path, below, options] as const))(
    'bash completion offers the subcommands and flags of the command `%s`',
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
    [
      ['weir', 'flows', '--s'],
      ['--server', '--src', '--src-port', '--state', '--suspended'],
    ],
    [
      ['weir', 'flows', '--proto', ''],
      ['tcp', 'udp', 'icmp'],
    ],
    [['weir', 'help', 'pol'], ['policy']],
    [
      ['weir', 'help', 'policy', 'd'],
      ['diff', 'delete'],
    ],
    [['weir', 'policy', 'explain', '--path', ''], []],
  ])('bash completion offers for the last of the typed words %j the completions %j', async (words, offered) => {
    expect(await offers(words)).toEqual(offered);
  });

  // Readline splits a line also at = and :, so the completion function receives these characters as separate
  // words.
  it.each([
    ['weir status --output=j', ['weir', 'status', '--output', '=', 'j'], ['json']],
    ['weir status --output=', ['weir', 'status', '--output', '='], ['table', 'json', 'yaml']],
    [
      'weir status --server http://[::1]:8080 --outp',
      'weir|status|--server|http|:|//[|::|1]|:|8080|--outp',
      ['--output'],
    ],
    ['weir status --server=http://a:80 --output t', 'weir|status|--server|=|http|:|//a|:|80|--output|t', ['table']],
  ] as const)(
    'bash completion completes the command line `%s` although readline splits the line at = and :',
    async (line, words, offered) => {
      expect(await offers(typeof words === 'string' ? words.split('|') : words, '/', line)).toEqual(offered);
    },
  );

  it('bash completion offers file names, also names with blanks, for an argument that is a file', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'my policy.yaml'), '');
    mkdirSync(join(folder, 'other'));
    expect(await offers(['weir', 'policy', 'apply', '-f', 'my'], folder)).toEqual(['my policy.yaml']);
    expect(await offers(['weir', 'config', 'check', 'ot'], folder)).toEqual(['other']);
  });

  it('bash completion completes a command line that a user types at an interactive prompt', async () => {
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
    shell.stdin.write('weir pol\tlis\t--outp\tj\t\n');
    await expect.poll(() => screen).toContain('called with <policy list --output json>');
    shell.stdin.end('exit\n');
  });
});

describe('completion of values from the node', () => {
  const TOKEN = { WEIR_TOKEN: 't' };
  const ok = (body: unknown): Answer => ({ status: 200, body });
  const policies = {
    items: [
      { id: 'p-1', name: 'my office' },
      { id: 'p-2', name: null },
      { id: 'q-3', name: 'home' },
    ],
  };
  const policy = {
    source_groups: [
      { id: 'lan', rules: [{ id: 'web' }, { id: 'dns' }] },
      { id: 'guests', rules: [{ id: 'web' }, { id: 'mail' }] },
      { id: 'empty' },
    ],
  };

  it.each([
    ['policy-name', policies, ['policy', 'get', '--name', 'my'], '/api/v1/policies', ['my office']],
    ['policy-id', policies, ['policy', 'get', '--id', 'p-'], '/api/v1/policies', ['p-1', 'p-2']],
    ['group', policy, ['flows', '--group', ''], '/api/v1/policy', ['lan', 'guests', 'empty']],
    ['rule', policy, ['flows', '--rule', ''], '/api/v1/policy', ['web', 'dns', 'mail']],
    ['rule', policy, ['flows', '--group', 'guests', '--rule', ''], '/api/v1/policy', ['web', 'mail']],
    [
      'integration',
      { items: [{ name: 'prod' }, { name: 'lab' }] },
      ['integration', 'remove', 'p'],
      '/api/v1/integrations',
      ['prod'],
    ],
    ['token-id', { items: [{ id: 'ab12' }, { id: 'cd34' }] }, ['token', 'revoke', 'c'], '/api/v1/tokens', ['cd34']],
    [
      'hostname',
      { items: [{ hostname: 'a.example' }] },
      ['wiretap', '--hostname', ''],
      '/api/v1/dns-cache',
      ['a.example'],
    ],
  ])(
    '`weir complete` prints the values of the kind %s, names or ids from the node, that begin with the typed text',
    async (kind, answer, words, path, offered) => {
      const { url, asked } = await serverThatAnswers(ok(answer));
      const line = [...words.slice(0, -1), '--server', url, words.at(-1) ?? ''];
      const out = offered.map((value) => `${value}\n`).join('');
      expect(await run(['complete', kind, '--', ...line], TOKEN)).toEqual({ code: 0, out, err: '' });
      expect(asked.map(({ path: of }) => of)).toEqual([path]);
    },
  );

  it('`weir complete` prints nothing and exits with 0 if the node refuses the request or is unreachable', async () => {
    const { url } = await serverThatAnswers({ status: 401, body: { error: 'No.' } });
    const nothing = { code: 0, out: '', err: '' };
    expect(await run(['complete', 'group', '--', 'hits', '--server', url, ''], TOKEN)).toEqual(nothing);
    expect(await run(['complete', 'group', '--', 'hits', '--server', 'http://127.0.0.1:1', ''], TOKEN)).toEqual(
      nothing,
    );
    expect(await run(['complete', 'group', '--', 'hits', '--token-file', '/no/such/file', ''])).toEqual(nothing);
  });

  it('`weir complete` prints nothing if the node does not respond within 1 s', async () => {
    const silent = createServer(() => {}).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    onTestFinished(() => silent.closeAllConnections());
    const server = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
    const clock = new ProgressClock();
    expect(await run(['complete', 'group', '--', 'hits', '--server', server, ''], TOKEN)).toMatchObject({ out: '' });
    expect(clock.ms()).toBeLessThan(2_500);
    silent.close();
  });

  it('bash completion sends the whole command line to `weir complete`, and escapes the blanks of the values', async () => {
    const folder = temporaryFolder();
    const program = join(folder, 'weir');
    writeFileSync(program, `#!/bin/sh\nprintf '%s|' "$@" >>'${folder}/called'\necho 'my office'\necho home\n`);
    chmodSync(program, 0o755);
    const line = [program, 'policy', 'get', '--server', 'http://x', '--name'];
    expect(await offers([...line, ''])).toEqual(['my\\ office', 'home']);
    expect(readFileSync(join(folder, 'called'), 'utf8')).toBe(
      'complete|policy-name|--|policy|get|--server|http://x|--name||',
    );
    const split = [program, 'hits', '--server', '=', 'http', ':', '//x', '--group', '=', 'h'];
    expect(await offers(split, '/', `${program} hits --server=http://x --group=h`)).toEqual(['my\\ office', 'home']);
    expect(readFileSync(join(folder, 'called'), 'utf8')).toMatch(
      /[|]complete[|]group[|]--[|]hits[|]--server=http:[/][/]x[|]h[|]$/,
    );
    expect(await offers([program, 'policy', 'activate', ''])).toEqual(['my\\ office', 'home']);
    expect(await offers([program, 'policy', 'activate', '--i'])).toEqual(['--id', '--if-match']);
  });

  it('shell completion offers the finding types, message types, verdicts, flow states and checks of lint that the API accepts', () => {
    expect(KNOWN_VALUES).toMatchObject({
      'finding-type': FINDING_TYPES,
      'message-type': WIRETAP_TYPES,
      verdict: WIRETAP_VERDICTS,
      'flow-verdict': FLOW_VERDICTS,
      'flow-state': FLOW_STATES,
      'lint-check': LINT_CHECKS,
    });
  });

  it('completion is offered for every flag and argument that takes a name or id from the node', async () => {
    const taken = (words: readonly string[]) => offers(['no-such-program', ...words]);
    expect(await taken(['findings', '--type', 'a'])).toEqual(['auth_denied', 'address_shared']);
    expect(await taken(['flows', 'list', '--verdict', ''])).toEqual(['allow', 'deny', 'audit', 'redirect']);
    const flags = commands.flatMap(({ options }) => options);
    const kindsOf = (name: string) => [
      ...new Set(flags.flatMap(({ names, takes }) => (names.includes(name) ? [takes] : []))),
    ];
    expect(['--group', '--rule', '--id', '--policy', '--hostname'].flatMap(kindsOf)).toEqual([
      ...['group', 'rule', 'policy-id', 'file', 'policy-id', 'hostname'],
    ]);
    const named = commands.flatMap(({ path, options, arguments: taken }) =>
      [...options, ...taken].flatMap(({ takes }) => (takes === 'policy-name' ? [path] : [])),
    );
    const commandsWithName = ['get', 'apply', 'activate', 'diff', 'lint', 'delete', 'history', 'rollback'];
    expect(named).toEqual(commandsWithName.map((name) => `weir policy ${name}`));
    expect(commands.find(({ path }) => path === 'weir token revoke')?.arguments[0]?.takes).toBe('token-id');
  });
});

describe('completion in other shells', () => {
  it.each(['zsh', 'fish'])(
    'the completion script for the shell %s contains every command and every flag',
    async (shell) => {
      const text = await script(shell);
      for (const { kind } of flagsOfNode(commands))
        expect(text).toMatch(new RegExp(`kind=${kind}|__weir_values ${kind}`));
      for (const { path, options } of commands) {
        expect(text).toContain(path);
        for (const { names } of options) expect(text).toContain(names.at(-1)?.replace(/^--/, '') ?? '');
      }
    },
  );

  skipUnless(isInstalled('fish'), 'fish is not installed: npm run setup -- --test').test(
    'fish completion offers subcommands, flag values, and values from the node',
    async () => {
      const folder = temporaryFolder();
      writeFileSync(join(folder, 'weir'), `#!/bin/sh\nprintf '%s|' "$@" >>'${folder}/called'\necho home\n`);
      chmodSync(join(folder, 'weir'), 0o755);
      writeFileSync(join(folder, 'completion.fish'), await script('fish'));
      const offered = (line: string): string[] => {
        const asking = `source ${folder}/completion.fish; complete -C ${quoted(line)}`;
        const env = { ...process.env, PATH: `${folder}:${process.env.PATH ?? ''}`, HOME: folder };
        const { stdout, stderr } = spawnSync('fish', ['--no-config', '-c', asking], { encoding: 'utf8', env });
        expect(stderr).toBe('');
        return stdout.split('\n').flatMap((text) => text.split('\t')[0] || []);
      };
      expect(offered('weir po')).toEqual(['policy']);
      expect(offered('weir flows --proto ')).toEqual(['icmp', 'tcp', 'udp']);
      expect(offered('weir help policy di')).toEqual(['diff']);
      expect(offered('weir hits --server http://x --group ')).toEqual(['home']);
      expect(offered('weir flows --group=h')).toEqual(['--group=home']);
      expect(readFileSync(join(folder, 'called'), 'utf8')).toBe(
        'complete|group|--|hits|--server|http://x|--group||complete|group|--|flows|h|',
      );
    },
  );

  it('the zsh script calls _weir if zsh autoloads the script, and compdef if zsh sources the script', async () => {
    expect(await script('zsh')).toMatch(
      /funcstack\[1\]} == _weir \]\]; then _weir "\$@"; else compdef _weir weir; fi\n$/,
    );
  });

  it('an unknown shell name is refused with exit code 2', async () => {
    expect((await run(['completion', 'tcsh'])).code).toBe(2);
  });
});
