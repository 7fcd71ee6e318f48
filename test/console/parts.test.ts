import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { built } from '#threads/built-file.js';
import { type ConsoleBrowser, openBrowser } from './browser.js';
import { type ConsoleNode, createConsoleNode } from './console-node.js';

/** The largest size of the files of the first page, compressed, in bytes. */
const FIRST_LOAD = 40 * 1024;
/** The largest size of all files, compressed, in bytes. */
const WHOLE = 300 * 1024;

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
  browser = await openBrowser(url, admin);
}, 120_000);
afterAll(async () => {
  await browser?.close();
  await node?.remove();
}, 60_000);

test('the overview of the console shows that the node enforces its policy, and names a rule without hits', async () => {
  await browser.open('');
  await browser.page.getByText('Enforcing').first().waitFor();
  await browser.page.getByRole('link', { name: 'office / old-ftp' }).waitFor();
  await browser.expectAccessible();
});

test('the page Why explains a denied flow from a pasted log line, and proposes a rule that lets the flow pass', async () => {
  await browser.open('why');
  await browser.page.getByLabel('Any line with two addresses').fill('SRC=10.77.1.2 DST=10.77.2.2 PROTO=TCP DPT=23');
  await browser.page.getByText('rule no-telnet of source group office is the first that matches').waitFor();
  await browser.page.getByRole('link', { name: 'Review this change' }).waitFor();
  await browser.expectAccessible();
});

test('the HTML document of the console refers to at most 40 kB of compressed files, and the whole console has at most 300 kB', async () => {
  const folder = built('console');
  const sizeOf = (name: string) => statSync(join(folder, `${name}.gz`)).size;
  // The chart of the overview is not in this list: the page loads it after the first paint.
  const document = await (await fetch(`${url}/console/`)).text();
  const files = [...document.matchAll(/\/console\/(assets\/[^"]+)"/g)].map(([, name = '']) => name);
  expect(files.some((name) => name.endsWith('.js'))).toBe(true);
  const first = ['index.html', ...files].map(sizeOf).reduce((sum, size) => sum + size, 0);
  expect(first).toBeLessThanOrEqual(FIRST_LOAD);
  const all = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.gz'));
  expect(all.map((name) => statSync(join(folder, name)).size).reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(
    WHOLE,
  );
});

test('the page Statecharts of the console shows a state within 250 ms after an actor of the node has entered it', async () => {
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

test('while performance mode is off, the pages of the console say which data is missing, and offer to enable it; writes in this time are listed as findings later', async () => {
  const { page } = browser;
  await request('settings/performance-mode', 'PUT', { enabled: false });
  await browser.open('');
  await page.getByText('Performance mode is off.').waitFor();
  await browser.expectAccessible();
  await page.getByRole('link', { name: 'What is dark now?' }).click();
  await page.getByRole('heading', { name: 'Is dark now' }).waitFor();
  await page.getByRole('link', { name: 'Traffic', exact: true }).click();
  await page.getByText('The live view is dark').waitFor();
  await request('policy', 'GET', undefined, 'guess');
  await browser.open('findings?tab=refused');
  await page.getByText('The findings cannot be read').waitFor();
  await browser.expectAccessible();
  await page.getByRole('button', { name: 'Switch it on' }).click();
  await page.locator('tbody tr', { hasText: 'no valid token or session' }).waitFor();
  await browser.open('findings?tab=changes');
  await page.locator('tbody tr', { hasText: 'put performance mode' }).first().waitFor();
  // Chromium reports the refused stream.
  browser.faults.splice(0);
}, 60_000);

test('the arrow keys move the focus between the states of a statechart, and the description follows the focus', async () => {
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

test('the page Statecharts lists every actor of the node with its states, and each chart fits into 1440 × 900 pixels', async () => {
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

test('the console shows a new API token only once; the token works until the user revokes it and types its name', async () => {
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

test('without a CA, the page Inspection says so without an error in the browser log, and can generate a CA', async () => {
  const { page } = browser;
  await browser.open('inspection');
  await page.getByText('There is none.').waitFor();
  expect(browser.faults).toEqual([]);
  await page.getByRole('button', { name: 'Generate a CA' }).click();
  await page.getByRole('link', { name: 'Download the certificate' }).waitFor();
}, 30_000);

test('a policy write in the list of the page Findings has a link to the history of the policy', async () => {
  const { page } = browser;
  await browser.open('findings?tab=changes');
  await page.getByRole('link', { name: 'History' }).first().click();
  await page.locator('.tabs a[aria-current=page]', { hasText: 'History' }).waitFor();
  await page.locator('.revision-number', { hasText: '1' }).waitFor();
}, 30_000);

test('the page Ask shows the sources that can reach a service and the rule that allows it, and can store the answer as an assertion', async () => {
  const { page } = browser;
  await browser.open('ask');
  await browser.expectAccessible();
  await page.getByRole('link', { name: 'Who can reach any destination on tcp/22?' }).click();
  await page.getByText('No source can.').waitFor();
  await page.goBack();
  await page.getByRole('heading', { name: 'For example' }).waitFor();
  await page.getByLabel('Service').fill('tcp/80');
  await page.getByRole('button', { name: 'Ask' }).click();
  await page.getByText('Only 10.77.1.0/24 can.').waitFor();
  await page.getByRole('link', { name: 'office / web' }).waitFor();
  await browser.expectAccessible();
  await page.getByRole('link', { name: 'for example 10.77.1.1 → 10.77.2.1 tcp/80' }).click();
  await page.locator('h2 .verdict.allow').waitFor();
  await page.goBack();
  await page.getByRole('link', { name: 'Keep it as an assertion…' }).click();
  await page.getByText('It holds for the policy in force.').waitFor();
  await page.getByRole('button', { name: 'Save the assertion' }).click();
  await page.locator('li', { hasText: 'only-tcp-80' }).getByText('holds').waitFor();
  const { items } = (await (await request('assertions')).json()) as { items: { assertion: object }[] };
  expect(items.map(({ assertion }) => assertion)).toEqual([
    { id: 'only-tcp-80', only: { from: ['10.77.1.0/24'], proto: 'tcp', ports: ['80'] } },
  ]);
  expect((await request('assertions', 'PUT', { assertions: [] })).status).toBe(200);
}, 60_000);

test('the page Ask shows each problem of a question beside its input field', async () => {
  const { page } = browser;
  await browser.open('ask?kind=never&from=nobody&to=10.77.2.0/99&service=tcp/22');
  const fault = async (label: string) => {
    const id = await page.getByLabel(label).getAttribute('aria-describedby');
    return page.locator(`[id="${id}"]`).innerText();
  };
  await page.locator('[aria-invalid=true]').first().waitFor();
  expect(await fault('Source')).toBe('The policy has no source group with this id.');
  expect(await fault('Destination')).toBe('This is neither an address nor a network in CIDR notation.');
  await page.getByLabel('Source').fill('office');
  await page.getByLabel('Destination').fill('');
  await page.getByRole('button', { name: 'Ask' }).click();
  await page.getByText('Yes, nothing passes.').waitFor();
}, 30_000);

test('the page Ask answers questions about the unsaved draft in the editor, and the page Why? explains an example flow by the same draft', async () => {
  const { page } = browser;
  const rule = { id: 'ssh', action: 'allow', match: { proto: 'tcp', dst_ports: [22] } };
  const proposal = encodeURIComponent(JSON.stringify({ source_group: 'office', before: null, rule }));
  await browser.open(`policy?propose=${proposal}`);
  await page.getByRole('button', { name: 'Back without applying' }).click();
  await browser.open('ask?kind=never&from=10.77.1.2&service=tcp/22');
  await page.getByText('Yes, nothing passes.').waitFor();
  const draft = page.locator('option', { hasText: 'my draft of' });
  await page.getByLabel('About').selectOption((await draft.getAttribute('value')) ?? '');
  await page.getByRole('button', { name: 'Ask' }).click();
  await page.getByText('No, everything passes.').waitFor();
  await page.getByRole('link', { name: /^for example/ }).click();
  await page.getByText('This is about your draft').waitFor();
  await page.locator('h2 .verdict.allow').waitFor();
  await page.getByRole('link', { name: 'Explain it by the policy in force.' }).click();
  await page.locator('h2 .verdict.deny').waitFor();
  await browser.open('policy');
  await page.getByRole('button', { name: 'Discard' }).click();
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
