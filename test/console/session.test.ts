import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { CERTIFICATE, KEY } from '#test/api/certificate.js';
import { run } from '#test/cli/cli-run.js';
import { type ConsoleBrowser, launch, openBrowser } from './browser.js';
import { type ConsoleNode, createConsoleNode, POLICY } from './console-node.js';

/** Runs in a page of another origin. Returns what the page learns from each request to `target`. */
const ATTACKS = `async (target) => {
  const outcomeOf = (sent) => sent.then(({ type }) => type, () => 'no response');
  const add = (name, values) => document.body.appendChild(Object.assign(document.createElement(name), values));
  const socket = new WebSocket(target.replace('http', 'ws') + '/api/v1/wiretap/stream', 'weir.wiretap.v1');
  const stream = new Promise((resolve) => {
    socket.onopen = () => resolve('open');
    socket.onerror = () => resolve('refused');
  });
  add('iframe', { src: target + '/console/' });
  add('iframe', { name: 'result' });
  add('form', { method: 'post', action: target + '/api/v1/config/reload', target: 'result' }).submit();
  const write = { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{}' };
  return {
    read: await outcomeOf(fetch(target + '/api/v1/policy', { credentials: 'include' })),
    write: await outcomeOf(fetch(target + '/api/v1/policy/lint', write)),
    stream: await stream,
  };
}`;
/**
 * Clicks each button of the present page that is enabled, also those that a click shows. Returns the texts of
 * disabled buttons without a reason: in their title, or in the page or bar around them. 'Discard' is left
 * out, because there is no draft.
 */
const CLICK_ALL = `(async () => {
  const says = (text) => /may only read/.test(text ?? '');
  const silent = () =>
    [...document.querySelectorAll('.content button:disabled')]
      .filter((button) => button.textContent !== 'Discard' && !says(button.title) && !says(button.closest('main, .bar')?.textContent))
      .map(({ textContent }) => textContent);
  const before = silent();
  const clicked = new Set();
  const next = () =>
    [...document.querySelectorAll('.content button:not(:disabled)')].find(
      (button) => !clicked.has(button) && button.closest('.chart') === null,
    );
  for (let button = next(); button !== undefined && clicked.size < 60; button = next()) {
    clicked.add(button);
    button.click();
    for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return [...before, ...silent()];
})()`;

let node: ConsoleNode;
let chromium: Browser;
let browser: ConsoleBrowser | null = null;
let url: string;

beforeAll(async () => {
  [node, chromium] = await Promise.all([createConsoleNode('session'), launch()]);
  url = node.rig.node.url;
});
afterEach(async () => {
  const open = browser;
  browser = null;
  await open?.close();
});
afterAll(async () => {
  await chromium?.close();
  await node?.remove();
});

const as = async (token: string | null): Promise<ConsoleBrowser> => {
  browser = await openBrowser(url, token, chromium);
  return browser;
};
const asAdmin = async () => as(await node.rig.node.token());
const request = async (method: string, path: string, body?: unknown) => {
  const reply = await node.rig.node.request(method, path, body);
  expect(reply.status, reply.text).toBeLessThan(300);
  return reply.body;
};
const issue = async (subject: string, role: 'admin' | 'readonly', more: object = {}) =>
  (await request('POST', '/api/v1/tokens', { subject, role, ...more })) as { token: string; id: string };
/** The session of a cookie; null if the node refuses the cookie. */
const sessionOf = async (cookie: string) =>
  (await (await fetch(`${url}/api/v1/session`, { headers: { cookie } })).json()) as { subject: string } | null;
const signIn = (token: string, headers: Readonly<Record<string, string>> = {}) =>
  fetch(`${url}/api/v1/session`, { method: 'POST', headers: { authorization: `Bearer ${token}`, ...headers } });
const cookieOf = (response: Response) => response.headers.get('set-cookie')?.split(';')[0] ?? '';
/** Chromium reports the refusals that the test provokes. */
const takeFaults = () => browser?.faults.splice(0) ?? [];

test('a link of `weir console` signs in one browser, and the browser history does not contain its one-time code', async () => {
  const { out } = await run(['console', '--server', url], { WEIR_TOKEN: await node.rig.node.token() });
  const link = out.trim();
  const { page } = await as(null);
  await page.goto(link);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  expect(page.url()).not.toContain('code');
  await page.getByRole('button', { name: /Sign out/ }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await page.goto(link.replace('/console/', '/console/?again'));
  await page.getByRole('alert').waitFor();
  // A request of the page can be in flight while it signs out.
  expect(new Set(takeFaults())).toEqual(new Set([expect.stringContaining('401')]));
});

test('the cookie of a session is not readable for scripts and not sent for other sites, ends with its token, and is not accepted as a token', async () => {
  const { token } = await issue('short', 'admin', { expires_in: 5 });
  const signedIn = await signIn(token);
  expect([signedIn.status, signedIn.headers.get('set-cookie')]).toEqual([
    201,
    expect.stringMatching(/^weir-session-[\d.-]+=[\w.-]+; Path=\/; Max-Age=[1-5]; HttpOnly; SameSite=Strict$/),
  ]);
  const cookie = cookieOf(signedIn);
  expect(await sessionOf(cookie)).toMatchObject({ subject: 'short', role: 'admin' });
  const jwt = cookie.split('=')[1] ?? '';
  expect((await signIn(jwt)).status).toBe(401);
  const write = { method: 'DELETE', headers: { cookie, origin: 'http://127.0.0.1:1' } };
  expect((await fetch(`${url}/api/v1/tokens/x`, write)).status).toBe(403);
  await expect.poll(() => sessionOf(cookie), { interval: 200 }).toBeNull();
});

test('when a token is revoked, its browsers are signed out within 15 s, and the page states the reason', async () => {
  const { token, id } = await issue('leaver', 'admin');
  const console = await as(token);
  const { page } = console;
  await console.open('traffic');
  await request('DELETE', `/api/v1/tokens/${id}`);
  const reason = page.getByText('The session has ended: its token was revoked or has expired.');
  await reason.waitFor({ timeout: 15_000 });
  takeFaults();
});

test('a web page from another port of the same host can neither read, write, open a stream nor show the console in a frame', async () => {
  const site = createServer((_, response) => response.setHeader('content-type', 'text/html').end('<p>another page'));
  await once(site.listen(0, '127.0.0.1'), 'listening');
  const { page } = await asAdmin();
  try {
    await page.goto(`http://127.0.0.1:${(site.address() as AddressInfo).port}/`);
    const outcome = await page.evaluate<object>(`(${ATTACKS})('${url}')`);
    expect(outcome).toEqual({ read: 'no response', write: 'no response', stream: 'refused' });
    await expect.poll(() => page.frames()[1]?.url()).toBe('chrome-error://chromewebdata/');
    const findings = async () => {
      const { items } = (await request('GET', '/api/v1/audit/findings?finding_type=auth_denied')) as {
        items: { operation: string; drop_reason: string }[];
      };
      return items.filter(({ drop_reason }) => drop_reason === 'origin_refused').map(({ operation }) => operation);
    };
    const operations = ['getActivePolicy', 'lintPolicy', 'reloadConfiguration', 'streamWiretap'];
    await expect.poll(findings).toEqual(expect.arrayContaining(operations));
    expect((await request('GET', '/api/v1/config/reload')) as object).toMatchObject({ last_reload: null });
  } finally {
    site.close();
    takeFaults();
  }
});

test('a read-only session can open every page of the console, and no button sends a request that the node would refuse', async () => {
  const { token } = await issue('reader', 'readonly');
  await request('PUT', '/api/v1/policy?confirm_within=300', { ...POLICY, default_policy: 'allow' });
  const console = await as(token);
  const { page } = console;
  const refused: string[] = [];
  page.on('response', (response) => {
    if (response.status() === 403) refused.push(`${response.request().method()} ${response.url()}`);
  });
  await console.open('');
  const links = page.locator('nav.side li a');
  const views = ['policy?view=history', 'policy?view=assertions', 'policy?view=stored', 'traffic?tab=flows'];
  const places = [
    ...(await links.all()).map((link) => async () => {
      await link.click();
      return link.textContent();
    }),
    ...views.map((view) => async () => {
      await console.open(view);
      return view;
    }),
  ];
  expect(places.length).toBeGreaterThan(14);
  const unexplained: string[] = [];
  for (const show of places) {
    const path = await show();
    await page.getByText('is not confirmed').waitFor();
    await page.waitForTimeout(400);
    const silent = await page.evaluate<string[]>(CLICK_ALL);
    unexplained.push(...silent.map((text) => `${path}: ${text}`));
  }
  await request('POST', '/api/v1/policy/pending/revert');
  expect({ refused, unexplained }).toEqual({ refused: [], unexplained: [] });
});

test('the console reports a killed node within 5 s while it keeps showing the earlier data, reports its return, and stays signed in', async () => {
  const out = cookieOf(await signIn(await node.rig.node.token()));
  await fetch(`${url}/api/v1/session`, { method: 'DELETE', headers: { cookie: out } });
  const console = await asAdmin();
  const { page } = console;
  await console.open('');
  await page.getByText('Enforcing').first().waitFor();
  await node.rig.node.end('SIGKILL');
  const silence = page.getByText('The node does not respond', { exact: true });
  await silence.waitFor({ timeout: 5_000 });
  await page.getByRole('heading', { name: 'Is it well?' }).waitFor();
  await page.getByRole('button', { name: /Sign out/ }).click();
  await page.getByText('Not signed out: the node does not respond.').waitFor();
  await node.rig.node.restart();
  await node.rig.node.ready();
  await silence.waitFor({ state: 'detached', timeout: 5_000 });
  await page.reload();
  await page.getByText('Enforcing').first().waitFor();
  expect(await sessionOf(out)).toBeNull();
  // The browser reports each request without a response as an error.
  takeFaults();
});

test('with TLS, the console signs in, and the cookie has the attribute Secure and the name prefix __Host-', async () => {
  const { folder } = node.rig.node;
  const file = join(folder, 'weir.yaml');
  const config = JSON.parse(readFileSync(file, 'utf8')) as { api: object };
  const [cert, key] = [join(folder, 'api.pem'), join(folder, 'api.key')];
  writeFileSync(cert, CERTIFICATE);
  writeFileSync(key, KEY, { mode: 0o600 });
  writeFileSync(file, JSON.stringify({ ...config, api: { ...config.api, tls: { cert, key } } }));
  await node.rig.node.restart();
  const secure = url.replace('http:', 'https:');
  const { page, context } = await as(null);
  await expect
    .poll(() =>
      context.request.get(`${secure}/health`).then(
        (response) => response.status(),
        () => null,
      ),
    )
    .toBe(200);
  await page.goto(`${secure}/console/`);
  await page.getByLabel('Token').fill(await node.rig.node.token());
  await page.keyboard.press('Enter');
  await page.getByText('Enforcing').first().waitFor();
  expect(await context.cookies()).toEqual([
    expect.objectContaining({
      name: expect.stringMatching(/^__Host-weir-session-/),
      secure: true,
      httpOnly: true,
      sameSite: 'Strict',
    }),
  ]);
  await page.goto(`${secure}/console/traffic`);
  await page.getByText('live', { exact: true }).waitFor();
});
