import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { firstLine, weirCommand } from '#cli/tour/node-process.js';
import { run } from '#test/cli/cli-run.js';
import { ProgressClock } from '#test/progress-clock.js';
import { topologyOfFile } from './topology-of-file.js';

const NOBODY = 65_534;
/** A server that answers each request with the token that it got. */
const SERVER = `
  require('node:http').createServer((request, response) => {
    console.log(request.url + ' ' + (request.headers.authorization ?? 'no token'));
    new Function('response', process.argv[3])(response);
  }).listen(Number(process.argv[1]), process.argv[2], () => console.log('listens'));`;

const topology = topologyOfFile('listener');
let folder: string;
let file: string;
const children: ChildProcess[] = [];
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-listener-'));
  file = join(folder, 'token');
});
afterEach(async () => {
  for (const child of children.splice(0)) {
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Starts a server of another user. Returns the lines that it has printed. */
async function listen(
  port: string,
  address = '127.0.0.1',
  answer = `response.end('{"items":[]}')`,
): Promise<{ readonly said: () => string[]; pid: number }> {
  const words = ['--reuid', String(NOBODY), '--regid', String(NOBODY), '--clear-groups'];
  const child = spawn('setpriv', [...words, process.execPath, '-e', SERVER, port, address, answer]);
  children.push(child);
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  expect(await firstLine(child)).toBe('listens');
  return { said: () => text.trim().split('\n').slice(1), pid: child.pid ?? 0 };
}

const list = (port: string, environment: Record<string, string> = {}, host = '127.0.0.1'): ReturnType<typeof run> => {
  const words = ['token', 'list', '--output', 'json', '--server', `http://${host}:${port}`];
  return run(environment.WEIR_TOKEN === undefined ? [...words, '--token-file', file] : words, environment);
};

describe('a token from a file', () => {
  test.each([
    ['127.0.0.1', '127.0.0.1'],
    ['0.0.0.0', '127.0.0.1'],
    ['::', '127.0.0.1'],
    ['::1', '[::1]'],
    ['127.0.0.1', 'localhost'],
  ])(
    '`weir` does not send a token from a file to a process of another user that listens at the address %s, if the command connects to the address %s',
    async (address, host) => {
      writeFileSync(file, 'secret');
      const { said, pid } = await listen('8080', address);
      const { code, err } = await list('8080', {}, host);
      expect(code).toBe(1);
      expect(JSON.parse(err)).toEqual({
        error: {
          code: 'other_listener',
          message: expect.stringMatching(
            `^process ${pid} \\(.*\\) of user ${NOBODY} listens at ${host.replace(/[[\]]/g, '.')}:8080, and not root,`,
          ) as string,
          fix: expect.any(String) as string,
        },
      });
      expect(said()).toEqual([]);
    },
  );

  test('`weir` sends a token from a file to a server of the owner of the file, and a token from WEIR_TOKEN to any server', async () => {
    writeFileSync(file, 'secret');
    const { said } = await listen('8081');
    expect(await list('8081', { WEIR_TOKEN: 'given' })).toMatchObject({ code: 0 });
    chownSync(file, NOBODY, NOBODY);
    expect(await list('8081')).toMatchObject({ code: 0 });
    await expect.poll(said).toEqual(['/api/v1/tokens Bearer given', '/api/v1/tokens Bearer secret']);
    rmSync(file);
  });

  test('`weir` sends a token from a file to a server process of its own user', async () => {
    writeFileSync(file, 'secret');
    const own = createServer((_, response) => void response.end('{"items":[]}')).listen(8082, '127.0.0.1');
    await once(own, 'listening');
    try {
      expect(await list('8082')).toMatchObject({ code: 0 });
    } finally {
      own.close();
    }
  });

  test('`weir` does not send a token from a file to a server without a listening socket at the address', async () => {
    writeFileSync(file, 'secret');
    const { said } = await listen('8083');
    await topology.node.must('nft', 'add table ip moved; add chain ip moved out { type nat hook output priority 0; }');
    await topology.node.must('nft', 'add rule ip moved out tcp dport 8084 redirect to :8083');
    const { err } = await list('8084');
    await topology.node.must('nft', 'delete table ip moved');
    expect((JSON.parse(err) as { error: { code: string } }).error.code).toBe('other_listener');
    await expect.poll(said).toEqual(['/health no token']);
  });

  test('`weir` with a token file reports `unreachable` if no node listens at the address', async () => {
    writeFileSync(file, 'secret');
    const { err } = await list('8085');
    expect((JSON.parse(err) as { error: { code: string } }).error.code).toBe('unreachable');
  });
});

/** Prints the properties of the unit that a test sets in the environment. */
const SYSTEMCTL =
  '#!/bin/sh\n[ -z "$RESTARTS" ] || { echo x >>"$RESTARTS"; restarts=$(wc -l <"$RESTARTS"); }\nprintf "ActiveState=%s\\nSubState=%s\\nMainPID=%s\\nNFileDescriptorStore=%s\\nNRestarts=%s\\n" $UNIT_STATE $restarts\n';

describe('a server without a response', () => {
  /** Runs `weir token list` as another user, which may not see which process has the socket. */
  async function listAsNobody(port: number, state: string, restarts = '') {
    const bin = join(folder, 'bin');
    mkdirSync(bin, { recursive: true });
    chmodSync(folder, 0o755);
    writeFileSync(join(bin, 'systemctl'), SYSTEMCTL, { mode: 0o755 });
    const words = ['--reuid', String(NOBODY), '--regid', String(NOBODY), '--clear-groups', ...weirCommand];
    const env = { PATH: `${bin}:${process.env.PATH}`, WEIR_TOKEN: 'secret', UNIT_STATE: state, RESTARTS: restarts };
    const child = spawn('setpriv', [...words, 'token', 'list', '--server', `http://127.0.0.1:${port}`], { env });
    children.push(child);
    const from = performance.now();
    const clock = new ProgressClock();
    let err = '';
    child.stderr.setEncoding('utf8').on('data', (part: string) => {
      err += part;
    });
    const [code] = (await once(child, 'close')) as [number];
    children.pop();
    return { code, err, tookMs: performance.now() - from, progressMs: clock.ms() };
  }

  test('a `weir` command ends at once if weir.service does not run and systemd holds the listening socket', async () => {
    const silent = createServer(() => {}).listen(8087, '127.0.0.1');
    await once(silent, 'listening');
    try {
      const { code, err, tookMs, progressMs } = await listAsNobody(8087, 'activating auto-restart 0 3');
      expect({ code, err }).toEqual({
        code: 1,
        err: [
          'weir: weir.service does not run (activating, auto-restart), and systemd keeps its listening socket: the kernel continues to enforce the last policy',
          '  → `journalctl -u weir` shows why it does not run; `weir dataplane status` shows what the kernel enforces',
          '',
        ].join('\n'),
      });
      expect(progressMs).toBeLessThan(10_000);
      expect(tookMs).toBeGreaterThan(3_000);
    } finally {
      silent.closeAllConnections();
      silent.close();
    }
  });

  test('a `weir` command ends if systemd starts weir.service repeatedly, also if the unit has a process each time', async () => {
    const silent = createServer(() => {}).listen(8091, '127.0.0.1');
    await once(silent, 'listening');
    const counted = join(folder, 'restarts');
    writeFileSync(counted, '');
    chmodSync(counted, 0o666);
    try {
      const { code, err, progressMs } = await listAsNobody(8091, 'activating start 7 3', counted);
      expect([code, err]).toEqual([
        1,
        expect.stringMatching(/^weir: weir.service does not run \(activating, start\), and systemd keeps/),
      ]);
      expect(progressMs).toBeLessThan(10_000);
    } finally {
      silent.closeAllConnections();
      silent.close();
    }
  });

  test.each([
    ['failed failed 0 0', 'weir.service has failed: `journalctl -u weir` shows why'],
    ['active running 7 0', 'check that the node runs at this address;'],
  ])(
    'a `weir` command that cannot connect gives advice for the state "%s" that systemd reports of weir.service',
    async (state, advice) => {
      const { code, err } = await listAsNobody(8090, state);
      expect({ code, err }).toEqual({
        code: 1,
        err: expect.stringMatching(
          `^weir: http://127.0.0.1:8090 cannot be reached: connection refused\n  → ${advice}`,
        ) as string,
      });
    },
  );

  test.each([
    ['runs', 'active running 7 3'],
    ['starts', 'activating start 7 3'],
    ['has no stored socket', 'inactive dead 0 0'],
  ])('a `weir` command waits for a slow response if systemd reports that weir.service %s', async (_, state) => {
    const slow = createServer((_request, response) => {
      setTimeout(() => response.end('{"items":[]}'), 4_000);
    }).listen(8088, '127.0.0.1');
    await once(slow, 'listening');
    try {
      expect(await listAsNobody(8088, state)).toMatchObject({ code: 0, err: '' });
    } finally {
      slow.close();
    }
  });
});

test.each([
  ['<html>', 200],
  ['<html>', 404],
  ['{"hello":1}', 200],
])(
  'an HTTP response with the body %s and the status %d from a program other than Weir ends `weir status --wait` at once, and the error names the process',
  async (body, status) => {
    const { pid } = await listen('8089', '127.0.0.1', `response.statusCode = ${status}; response.end('${body}')`);
    const { code, err } = await run(['status', '--wait', '--server', 'http://127.0.0.1:8089'], {
      WEIR_TOKEN: 'secret',
    });
    expect({ code, err }).toEqual({
      code: 1,
      err: expect.stringMatching(
        `^weir: http://127.0.0.1:8089/ready did not answer as a Weir node: process ${pid} \\(.*\\) of user ${NOBODY} listens at 127.0.0.1:8089\n`,
      ) as string,
    });
  },
);

test('`weir status` reads the readiness of a node without a token', async () => {
  const { said } = await listen('8086');
  await run(['status', '--server', 'http://127.0.0.1:8086'], { WEIR_TOKEN: 'secret' });
  await expect.poll(() => said().find((line) => line.startsWith('/ready'))).toBe('/ready no token');
});
