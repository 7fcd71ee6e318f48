import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { text } from 'node:stream/consumers';
import { beforeAll, expect, test } from 'vitest';
import { weirCommand } from '#cli/tour/node-process.js';

type Ended = { readonly code: number; readonly output: string; readonly left: readonly string[] };

/** Runs `weir start` to its end. `left` has the namespaces, pinned programs and folders that it leaves. */
async function quickStart(env: NodeJS.ProcessEnv = {}): Promise<Ended> {
  const [command, ...words] = weirCommand;
  const tour = spawn(command, [...words, 'start'], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  });
  const [output, [code]] = await Promise.all([text(tour.stdout), once(tour, 'exit') as Promise<[number]>]);
  const left = ['/run/netns', '/sys/fs/bpf', tmpdir()].flatMap((folder) =>
    readdirSync(folder).filter((name) => name.startsWith(`weir-${tour.pid}-`)),
  );
  return { code, output, left };
}

let done: Ended;
beforeAll(async () => {
  done = await quickStart();
});

/** Returns the results that the tour prints for the steps from `first` to the end of the second act. */
const linesFrom = (first: number): readonly string[] =>
  done.output
    .slice(done.output.indexOf(`\n${first}. `), done.output.indexOf('\nThird act'))
    .split('\n')
    .filter((line) => line.startsWith('   →'));

test('the demonstration `weir start` allows and denies flows by addresses', () => {
  expect(done.code).toBe(0);
  expect(done.output).toContain('→ open; 1, 2, 3 came back: the flow passes');
  expect(done.output).toContain('its packets are dropped: no number comes back');
});

test('the demonstration `weir start` allows and refuses a DNS name, a TLS connection and an HTTP request through masquerade', () => {
  expect(linesFrom(9)).toEqual([
    '   → office: www.example.com → 10.77.2.2; now the kernel admits this address',
    '   → office: shop.example.com → no such name',
    '   → www.example.com: 200, end-to-end; the server saw the address 10.77.2.1 of the node',
    '   → shop.example.com: reset before the server got a byte',
    '   → GET /public/news: 200',
    '   → GET /private/payroll: 403',
    '   → dns_deny: 10.77.1.2, shop.example.com',
    '   → tls_deny: 10.77.1.2, shop.example.com',
    '   → http_deny: 10.77.3.2, GET www.example.com/private/payroll',
  ]);
});

test('the demonstration `weir start` shows what a change would close, lets it revert itself, and refuses it by an assertion', () => {
  const act = done.output.slice(done.output.indexOf('\nThird act'), done.output.indexOf('\nRemoved'));
  expect(act).toMatch(/policy diff -f change\.json\n.*256 sources of admins lose 10\.77\.2\.2 tcp\/80/);
  expect(act).toMatch(/closes 10\.77\.1\.0\/24 → 10\.77\.2\.2 tcp\/80/);
  expect(act).toMatch(/in force, generation \d+[\s\S]*the same session goes on: \d+ came back/);
  expect(act).toMatch(/admins-reach-the-server: default_policy denies 10\.77\.1\.2 → 10\.77\.2\.2 tcp\/80/);
  expect(act.trimEnd()).toMatch(/→ the change is refused, and the session goes on$/);
});

test('the demonstration `weir start` removes at the end all that it created, prints the removal, and suggests three next commands', () => {
  const [removed, next, ...commands] = done.output.trimEnd().split('\n').slice(-5);
  expect(removed).toMatch(/^Removed: the node, .* Nothing of the tour is left on this machine\.$/);
  expect(next).toBe('Next:');
  expect(commands.map((line) => line.replace(/^ +(npx )?weir (.*?) +# .*$/, '$2'))).toEqual([
    'dataplane check --config weir.yaml',
    'init --interfaces lan0,wan0 --mode audit',
    'start --cluster',
  ]);
});

test('the demonstration `weir start` leaves no namespace, pinned program or folder behind, also after a failure', async () => {
  expect(done.left).toEqual([]);
  const failed = await quickStart({ TMPDIR: '/proc' });
  expect([failed.code, failed.left]).toEqual([1, []]);
  expect(failed.output).toContain('The quick start failed: ');
});
