import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { printError } from '#cli/errors/error-output.js';
import { processTerminal } from '#cli/output/terminal.js';
import { ConfigError } from '#config/config-problem.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { freePort } from '#test/sockets/free-port.js';
import { run, serverThatAnswers } from './cli-run.js';

/** Prints an error as the command line does. */
function printed(error: unknown) {
  let err = '';
  const print = (text: string): void => {
    err += text;
  };
  const terminal = { ...processTerminal, colours: false, err: print };
  return { code: printError(error, 'table', terminal), err };
}

function thrownBy(act: () => unknown): unknown {
  try {
    act();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}

describe('errors of the command line', () => {
  const folder = mkdtempSync(join(tmpdir(), 'weir-errors-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  const config = join(folder, 'weir.yaml');
  writeFileSync(config, 'version: 1\nnode: { data_dir: 7 }\napi: { listen: 7 }\n');
  const policy = join(folder, 'policy.yaml');
  writeFileSync(policy, 'default_policy: dney\n');
  const problems = {
    problems: [
      { pointer: '/a', code: 'x', message: 'one' },
      { pointer: '/b', code: 'x', message: 'two' },
    ],
  };

  it.each<[string, readonly string[], number]>([
    ['an unknown command', ['polcy'], 2],
    ['an unknown subcommand', ['policy', 'dif'], 2],
    ['an unknown command of help', ['help', 'polcy'], 2],
    ['an unknown option', ['status', '--serve', 'x'], 2],
    ['a missing argument', ['token', 'revoke'], 2],
    ['too many arguments', ['token', 'list', 'x'], 2],
    ['a missing option', ['init'], 2],
    ['a value that is not valid', ['flows', '--limit', 'x'], 2],
    ['a value that is none of the choices', ['token', 'list', '-o', 'xml'], 2],
    ['flags that exclude each other', ['policy', 'get', '--name', 'a', '--id', 'b'], 2],
    ['a configuration that is not valid', ['config', 'check', config], 1],
    ['a configuration that does not exist', ['config', 'check', '/no/such/file'], 1],
    ['a configuration with which a node cannot start', ['run', '--config', config], 78],
    ['a configuration that names the node', ['status', '--config', config], 1],
    ['a policy that is not valid', ['policy', 'diff', '-f', policy], 1],
    ['a policy that does not exist', ['policy', 'apply', '-f', '/no/such/file'], 1],
    ['a token file that does not exist', ['token', 'list', '--token-file', '/no/such/file'], 1],
    ['a refused connection', ['token', 'list', '--server', 'REFUSED'], 1],
    ['a problem document', ['token', 'list'], 1],
  ])(
    'an error of the command line (%s) begins with `weir: `, and its other lines contain only problems and advice',
    async (_, words, exit) => {
      const answer = { status: 409, body: { type: 'urn:weir:error:name_taken', error: 'No.', ...problems } };
      const { url } = await serverThatAnswers(answer);
      const closed = `http://127.0.0.1:${await freePort()}`;
      const given = words.map((word) => (word === 'REFUSED' ? closed : word));
      const environment = { WEIR_SERVER: url, ...(given.includes('--token-file') ? {} : { WEIR_TOKEN: 't' }) };
      const { code, out, err } = await run(given, environment);
      expect({ code, out }).toEqual({ code: exit, out: '' });
      const [first, ...others] = err.split('\n').slice(0, -1);
      expect(first).toMatch(/^weir: \S/);
      expect(first).not.toMatch(/error:/);
      for (const line of others) expect(line).toMatch(/^( {2}\S|\/\S+:\d+:\d+: \S)/);
    },
  );
});

describe('system errors of the command line', () => {
  const asUser = (act: string): unknown => {
    const script = `process.setuid(65534); try { ${act} } catch (error) { console.log(JSON.stringify({ message: error.message, ...error })) }`;
    const { stdout } = spawnSync(process.execPath, ['-e', script], { encoding: 'utf8' });
    return Object.assign(new Error(), JSON.parse(stdout) as object);
  };
  const root = 'run the command as root, or as the user of the unit, or give this user the permission';
  const folder = mkdtempSync(join(tmpdir(), 'weir-errors-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  const closed = join(folder, 'closed');
  writeFileSync(closed, '');
  chmodSync(closed, 0o600);

  it.each<[string, () => unknown, string, string?]>([
    [
      'a missing file',
      () => thrownBy(() => readFileSync('/no/file')),
      'open /no/file: no such file or directory (ENOENT)',
    ],
    [
      'a file that cannot be renamed',
      () => thrownBy(() => renameSync('/no/file', '/no/other')),
      'rename /no/file to /no/other: no such file or directory (ENOENT)',
    ],
    [
      'a file that this user cannot read',
      () => asUser(`fs.readFileSync(${JSON.stringify(closed)})`),
      `open ${closed}: permission denied (EACCES)`,
      root,
    ],
    [
      'a program that is not installed',
      () => spawnSync('/no/such/program').error,
      'spawnSync /no/such/program: no such file or directory (ENOENT)',
      'install the package with the program /no/such/program',
    ],
    [
      'an operation of libc',
      () => new KernelFailure('attach egress to eth0', 1),
      'attach egress to eth0: operation not permitted (EPERM)',
      'run the command as root',
    ],
    [
      'a bare code',
      () => Object.assign(new Error('EACCES'), { code: 'EACCES' }),
      'an operation failed: permission denied (EACCES)',
      root,
    ],
    [
      'an error that has a system error as its cause',
      () =>
        new ConfigError([{ code: 'unreadable', key: '', where: '/x', message: 'permission denied' }], false, {
          cause: Object.assign(new Error(), { code: 'EACCES' }),
        }),
      '/x cannot be read: permission denied',
      root,
    ],
    [
      'a file name with control characters',
      () => thrownBy(() => readFileSync('/no/\u001b[2J')),
      'open /no/\\u001b[2J: no such file or directory (ENOENT)',
    ],
  ])(
    'the output for a system error (%s) names the operation, the file or address, and the remedy',
    (_, fail, message, remedy) => {
      expect(printed(fail())).toEqual({
        code: 1,
        err: `weir: ${message}\n${remedy === undefined ? '' : `  → ${remedy}\n`}`,
      });
    },
  );

  it('the output for an address in use names the address and a command that shows the process with this address', async () => {
    const [first, second] = [createServer(), createServer()];
    const port = await freePort();
    await new Promise<void>((resolve) => void first.listen(port, '127.0.0.1', resolve));
    const failure = await new Promise((resolve) => void second.on('error', resolve).listen(port, '127.0.0.1'));
    first.close();
    expect(printed(failure).err).toBe(
      `weir: listen 127.0.0.1:${port}: address already in use (EADDRINUSE)\n  → \`ss -lntup\` shows the process that uses the address; end it, or use another address\n`,
    );
  });

  it('the command line rethrows a bug, such as a `TypeError`, instead of printing it as an error', () => {
    expect(() => printed(new TypeError('x is undefined'))).toThrow('x is undefined');
  });
});
