import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadConfig, parseConfig } from '#config/load.js';
import { createWebhookSink } from '#observe/findings/sinks/webhook-sink.js';
import { createUpstreamTrust } from '#service-plane/upstream/upstream-trust.js';
import { fileSeal } from '#store/settings/seal.js';
import { createAuthority } from '#store/tokens/authority.js';
import { createTokenStore } from '#store/tokens/token-store.js';
import { run, serverThatAnswers } from '#test/cli/cli-run.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

type Made = { readonly folder: string; readonly path: string };
/**
 * Lets the code under test read the file at `path`, or a file with a fixed name in `folder`. Rejects or
 * resolves with the error message for the user.
 */
type Read = (made: Made) => Promise<unknown>;
const failureOf = async (read: Read, made: Made): Promise<string> => {
  try {
    return String(await read(made));
  } catch (failure) {
    return failure instanceof Error ? failure.message : String(failure);
  }
};
const authority: Read = ({ folder }) => createAuthority(createTokenStore(createMemoryStore()), folder);
const named =
  (section: (path: string) => string): Read =>
  async ({ path }) =>
    parseConfig(`version: 1\n${section(path)}\n`, 'weir.yaml', {});
const trust: Read = async ({ path }) => createUpstreamTrust({ source: path });
const deliver: Read = ({ path }) =>
  createWebhookSink({ url: 'http://127.0.0.1:9', secretFile: path, timeoutMs: 1_000 }).deliver(
    [],
    new AbortController().signal,
  );

const CONFIGURED: readonly [string, string, Read][] = [
  ['the configuration', 'weir.yaml', async ({ path }) => loadConfig(path, {})],
  ['api.tls.cert', 'cert', named((path) => `api: { tls: { cert: ${path}, key: /dev/null } }`)],
  ['api.tls.key', 'key', named((path) => `api: { tls: { cert: /dev/null, key: ${path} } }`)],
  ['service_plane.upstream_ca', 'roots', trust],
  ['findings.webhook.secret_file', 'secret', deliver],
  ['the sealing key', 'seal.key', ({ path }) => fileSeal(path, true).seal(Buffer.alloc(1), 'test')],
  ['the signing key of the tokens', 'token.key', authority],
  ['the admin token', 'admin.token', authority],
  ['the list of revoked tokens', 'token.revocations', authority],
  ['the list of ended sessions', 'session.ends', authority],
];
const UNFIT: readonly [string, (path: string) => unknown, string][] = [
  ['a FIFO', (path) => execFileSync('mkfifo', ['-m', '600', path]), 'is a FIFO, not a regular file'],
  ['a directory', (path) => mkdirSync(path, 0o700), 'is a directory, not a regular file'],
  [
    'larger than the maximum size',
    (path) => {
      writeFileSync(path, '', { mode: 0o600 });
      truncateSync(path, 65 * 1024 * 1024);
    },
    'is larger than',
  ],
];

describe.each(CONFIGURED)('the reader of %s', (_, name, read) => {
  it.each(UNFIT)(
    'each reader of a configured file or file of the data folder fails with an error that names the path if the file is %s',
    async (_kind, make, reason) => {
      const folder = temporaryFolder();
      const path = join(folder, name);
      make(path);
      expect(await failureOf(read, { folder, path })).toContain(`${path} ${reason}`);
    },
  );
});

const COMMANDS: readonly [string, (path: string, url: string) => readonly string[]][] = [
  ['policy apply -f', (path, url) => ['policy', 'apply', '-f', path, '--server', url]],
  ['policy diff -f', (path, url) => ['policy', 'diff', '-f', path, '--server', url]],
  ['--token-file', (path, url) => ['token', 'list', '--server', url, '--token-file', path]],
  ['ca install --cert', (path, url) => ['ca', 'install', '--cert', path, '--key', '/dev/null', '--server', url]],
];

describe.each(COMMANDS)('weir %s', (name, words) => {
  const answer = { status: 200, body: { items: [] } };
  const environment: Record<string, string> = name === '--token-file' ? {} : { WEIR_TOKEN: 't' };

  it.each(UNFIT.slice(1))(
    'a command fails with an error that names the path of its input, and sends no request, if the file is %s',
    async (_, make, reason) => {
      const { url, asked } = await serverThatAnswers(answer);
      const path = join(temporaryFolder(), 'file');
      make(path);
      const { code, err } = await run(words(path, url), environment);
      expect([code, asked.length]).toEqual([1, 0]);
      expect(err).toContain(`${path} ${reason}`);
    },
  );

  it("a command refuses a pipe from the shell's <(…) whose content exceeds the size limit", async () => {
    const { url } = await serverThatAnswers(answer);
    const path = join(temporaryFolder(), 'pipe');
    execFileSync('mkfifo', [path]);
    const writer = spawn('sh', ['-c', 'exec head -c 68157440 /dev/zero > "$0"', path], { stdio: 'ignore' });
    const ended = once(writer, 'exit');
    const { code, err } = await run(words(path, url), environment);
    expect(code).toBe(1);
    expect(err).toContain(`${path} is larger than`);
    await ended;
  });
});

it('`weir` reads the token for its requests from a named pipe if --token-file names a pipe', async () => {
  const { url, asked } = await serverThatAnswers({ status: 200, body: { items: [] } });
  const path = join(temporaryFolder(), 'pipe');
  execFileSync('mkfifo', [path]);
  const writer = spawn('sh', ['-c', 'printf "from-a-pipe\\n" > "$0"', path], { stdio: 'ignore' });
  const ended = once(writer, 'exit');
  await run(['token', 'list', '--server', url, '--token-file', path]);
  await ended;
  expect(asked.map(({ authorization }) => authorization)).toEqual(['Bearer from-a-pipe']);
});
