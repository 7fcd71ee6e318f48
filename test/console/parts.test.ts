import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ConsoleBrowser, openBrowser } from './browser.js';
import { type ConsoleNode, createConsoleNode } from './console-node.js';

let node: ConsoleNode;
let browser: ConsoleBrowser;
let url: string;
let admin: string;

const request = async (path: string, method = 'GET', body?: object, token = admin) =>
  fetch(`${url}/api/v1/${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });

beforeAll(async () => {
  node = await createConsoleNode('cparts');
  url = node.rig.node.url;
  admin = await node.rig.node.token();
  // Without a CA, the browser would report the response 404 as an error.
  expect((await request('settings/tls-intercept-ca/generate', 'POST')).status).toBe(201);
  browser = await openBrowser(url, admin);
}, 120_000);
afterAll(async () => {
  await browser?.close();
  await node?.remove();
}, 60_000);

test('the statechart of a part shows a state within 250 ms after the node has entered it', async () => {
  const { page } = browser;
  await browser.open('statecharts?part=performanceMode');
  await page.locator('[data-state="performanceMode.enabled.current"].active').waitFor();
  await page.evaluate(`
    new MutationObserver(() => {
      const box = document.querySelector('[data-state="performanceMode.disabled.current"]');
      if (box?.classList.contains('active') === true) globalThis.litAt ??= Date.now();
    }).observe(document.body, { subtree: true, childList: true, attributes: true });
  `);
  await request('settings/performance-mode', 'PUT', { enabled: false });
  await page.locator('[data-state="performanceMode.disabled.current"].active.entered').waitFor();
  const litAt = await page.evaluate<number>('litAt');
  const enteredAt = Date.parse((await page.locator('.before time').first().getAttribute('datetime')) ?? '');
  expect(litAt - enteredAt).toBeLessThan(250);
  await expect(page.locator('.before li').first().textContent()).resolves.toContain('current after');
  await request('settings/performance-mode', 'PUT', { enabled: true });
  await page.locator('[data-state="performanceMode.enabled.current"].active').waitFor();
}, 30_000);

test('the arrow keys move between the states of a chart, and the words follow', async () => {
  const { page } = browser;
  await browser.open('statecharts?part=dataplane');
  await page.locator('[data-state="dataplane.engaged.enforcing.idle"].active button').focus();
  await page.locator('.chart-side h2', { hasText: 'engaged › enforcing › idle' }).waitFor();
  await page.keyboard.press('ArrowUp');
  const focused = await page.evaluate<string>(
    `document.activeElement.closest('[data-state]')?.getAttribute('data-state')`,
  );
  expect(focused).not.toBe('dataplane.engaged.enforcing.idle');
  await page.locator('.chart-side h2', { hasText: 'From this state' }).waitFor();
}, 30_000);

test('every part of the node is on the page Statecharts with its states, and its chart fits in 1440 × 900', async () => {
  const { page } = browser;
  const { charts } = (await (await request('debug/statecharts')).json()) as { charts: { name: string }[] };
  for (const { name } of charts) {
    await browser.open(`statecharts?part=${name}`);
    await page.locator('h2#chart-title', { hasText: name }).waitFor();
    await page.locator('.chart .state.active').first().waitFor();
    const { height, width, room } = await page.evaluate<Record<'height' | 'width' | 'room', number>>(`({
      height: document.documentElement.scrollHeight,
      width: document.querySelector('.chart-frame').scrollWidth,
      room: document.querySelector('.chart-frame').clientWidth,
    })`);
    expect({ name, height }).toEqual({ name, height: 900 });
    expect({ name, width }).toEqual({ name, width: room });
  }
}, 120_000);

test('a token is issued and shown once, works, and is refused after it is revoked by its name', async () => {
  const { page } = browser;
  await browser.open('settings');
  await page.getByLabel('Subject of a new token').fill('grafana');
  await page.getByRole('button', { name: 'Issue' }).click();
  const token = await page.getByRole('textbox', { name: 'Token of grafana' }).inputValue();
  expect((await request('stats', 'GET', undefined, token)).status).toBe(200);
  await page.getByRole('button', { name: 'I have stored it' }).click();
  await page.locator('tr', { hasText: 'grafana' }).getByRole('button', { name: 'Revoke' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('textbox').fill('grafan');
  expect(await dialog.getByRole('button', { name: 'Revoke' }).isDisabled()).toBe(true);
  await dialog.getByRole('textbox').fill('grafana');
  await dialog.getByRole('button', { name: 'Revoke' }).click();
  await page.locator('tr', { hasText: 'grafana' }).waitFor({ state: 'detached' });
  expect((await request('stats', 'GET', undefined, token)).status).toBe(401);
}, 30_000);

test('a session that may only read sees the settings, and its controls are disabled and say why', async () => {
  const issued = (await (await request('tokens', 'POST', { subject: 'reader', role: 'readonly' })).json()) as {
    token: string;
  };
  const reader = await openBrowser(url, issued.token);
  try {
    await reader.open('settings');
    await reader.page.getByText('This session may only read, so').waitFor();
    for (const name of ['Disable it', 'Reload it', 'Download the dump of this node'])
      expect(await reader.page.getByRole('button', { name }).isDisabled()).toBe(true);
  } finally {
    await reader.close();
  }
}, 60_000);

test.each(['statecharts', 'settings', 'inspection', 'nodes', 'integrations'])(
  'the page %s has no violation of WCAG 2.2 AA in both themes',
  async (path) => {
    await browser.open(path);
    await browser.page.waitForTimeout(800);
    await browser.expectAccessible();
  },
  60_000,
);
