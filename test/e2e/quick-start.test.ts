import { execFileSync } from 'node:child_process';
import { beforeAll, expect, test } from 'vitest';
import { weirCommand } from '#cli/tour/node-process.js';
import { openBrowser } from '#test/console/browser.js';
import { type Ended, linkIn, startTour, type Tour } from './started-tour.js';

/** Opens the link that `weir start --keep` prints, looks at the console, and ends the tour by SIGINT. */
async function lookAtKept(tour: Tour): Promise<Ended & { readonly command: string; readonly again: string }> {
  const output = await tour.printed('Ctrl-C ends it');
  const command = /\$ (?:npx )?weir (console .*)/.exec(output)?.[1] ?? '';
  const browser = await openBrowser('', null);
  try {
    const { page } = browser;
    await page.goto(linkIn(output));
    await page.getByText('Enforcing').first().waitFor();
    await page.getByRole('link', { name: 'office / old-ftp' }).waitFor();
    await page.getByRole('link', { name: 'Traffic' }).click();
    for (const { what, verdict } of KEPT_TRAFFIC)
      await page.locator('.rows tbody tr', { hasText: what }).filter({ hasText: verdict }).first().waitFor();
  } finally {
    await browser.close();
  }
  const [program, ...before] = weirCommand;
  const again = execFileSync(program, [...before, ...command.split(' ')], { encoding: 'utf8', stdio: 'pipe' });
  // Further signals, such as those of a user who presses Ctrl-C twice, must not end the removal.
  const signals = setInterval(() => tour.process.kill('SIGINT'), 10);
  await tour.printed('Removed: ');
  clearInterval(signals);
  return { ...(await tour.ended()), command, again };
}

const KEPT_TRAFFIC = [
  { what: 'tcp 80', verdict: 'allowed' },
  { what: 'tcp 23', verdict: 'denied' },
  { what: 'tcp 81', verdict: 'would be denied' },
  { what: 'lookup A', verdict: 'allowed' },
  { what: 'tls 443', verdict: 'allowed' },
  { what: 'GET /public/news', verdict: 'allowed' },
] as const;

let done: Ended;
let kept: Awaited<ReturnType<typeof lookAtKept>>;
beforeAll(async () => {
  [done, kept] = await Promise.all([startTour().ended(), lookAtKept(startTour(['--keep']))]);
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

test('the demonstration `weir start` shows which flows a change would close, waits until the node reverts it, and makes an assertion refuse it', () => {
  const act = done.output.slice(done.output.indexOf('\nThird act'), done.output.indexOf('\nRemoved'));
  expect(act).toMatch(/policy diff -f change\.json\n.*256 sources of admins lose 10\.77\.2\.2 tcp\/80/);
  expect(act).toMatch(/closes 10\.77\.1\.0\/24 → 10\.77\.2\.2 tcp\/80/);
  expect(act).toMatch(/in force, generation \d+[\s\S]*the same session goes on: \d+ came back/);
  expect(act).toMatch(/admins-reach-the-server: default_policy denies 10\.77\.1\.2 → 10\.77\.2\.2 tcp\/80/);
  expect(act.trimEnd()).toMatch(/→ the change is refused, and the session goes on$/);
});

test('the demonstration `weir start` removes at its end everything that it created, and prints this and the next steps', () => {
  const [removed, next, ...commands] = done.output.trimEnd().split('\n').slice(-6);
  expect(removed).toMatch(/^Removed: the node, .* Nothing of the tour is left on this machine\.$/);
  expect(next).toBe('Next:');
  expect(commands.map((line) => line.replace(/^ +(.*?) +# .*$/, '$1').replace('npx ', ''))).toEqual([
    'weir start --keep',
    'weir start --cluster',
    'weir init --interfaces lan0,wan0 --mode audit',
    expect.stringMatching(/^\/.*\/docs\/README\.md$/),
  ]);
});

test('`weir start --keep` leaves the gateway running with traffic for each verdict, and prints links that open the console', () => {
  expect(kept.command).toMatch(/^console --server http:\/\/127\.0\.0\.1:\d+ --token-file \/.*\/admin\.token$/);
  expect(kept.again).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/console\/#code=[\w-]+\n$/);
});

test('`weir start --keep` removes everything that it created after SIGINT, also if the signal is sent twice', () => {
  expect([kept.code, kept.left]).toEqual([0, []]);
  expect(kept.output).toContain('Nothing of the tour is left on this machine.');
});

test('the demonstration `weir start` leaves no namespace, pinned program, folder or process behind, also after a failure, SIGTERM or a closed terminal', async () => {
  expect(done.left).toEqual([]);
  const [failed, terminated, closed] = [
    startTour([], { TMPDIR: '/proc' }),
    startTour(['--keep']),
    startTour(['--keep']),
  ];
  await terminated.printed('\n1. ');
  terminated.process.kill('SIGTERM');
  await closed.printed('\n1. ');
  closed.process.stdout.destroy();
  closed.process.kill('SIGHUP');
  const ends = await Promise.all([failed.ended(), terminated.ended(), closed.ended()]);
  expect(ends.map(({ code, left }) => [code, left])).toEqual([
    [1, []],
    [0, []],
    [0, []],
  ]);
  expect(ends[0]?.output).toContain('The quick start failed: ');
});
