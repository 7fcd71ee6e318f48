import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type ConsoleBrowser, openBrowser } from './browser.js';
import { type ConsoleNode, createConsoleNode } from './console-node.js';

const SETTING = '/api/v1/settings/performance-mode';
let node: ConsoleNode;
let browser: ConsoleBrowser;

beforeAll(async () => {
  node = await createConsoleNode('traffic');
  browser = await openBrowser(node.rig.node.url, await node.rig.node.token());
});
afterAll(async () => {
  await browser?.close();
  await node?.remove();
});
beforeEach(async () => {
  // Leave the page and the table, so that each test begins with rows that move.
  await browser.page.mouse.move(0, 0);
});

const row = (text: string) => browser.page.locator('.rows tbody tr', { hasText: text });
const countOf = async (text: string) => Number(await row(text).locator('td').nth(6).textContent());

test('the page Traffic of the console shows the sources and destinations of flows, and a denied row links to its explanation', async () => {
  await browser.open('traffic');
  const denied = row('tcp 23');
  await denied.waitFor();
  expect(await denied.locator('.verdict').textContent()).toBe('denied');
  expect(await denied.textContent()).toContain('office / no-telnet');
  expect(await row('tcp 554').locator('.verdict').textContent()).toBe('would be denied');
  await expect.poll(() => countOf('tcp 443')).toBeGreaterThan(1);
  await browser.expectAccessible();

  await denied.getByRole('button').click();
  const details = browser.page.getByRole('complementary');
  expect(await details.textContent()).toContain('10.77.2.2');
  await browser.expectAccessible();
  await details.getByRole('link', { name: 'Why?' }).click();
  await browser.page.locator('.walk .matched', { hasText: 'no-telnet' }).waitFor();
});

test('the rows of the page Traffic do not move while the pointer is over them, and the space key also stops their counts', async () => {
  const { page } = browser;
  await browser.open('traffic?filter=port:22');
  await row('tcp 22').waitFor();
  await row('tcp 22').hover();
  const before = await countOf('tcp 22');
  await expect.poll(() => countOf('tcp 22')).toBeGreaterThan(before);
  expect(await page.locator('.waiting-rows').textContent()).toContain('keep their places');

  await page.mouse.move(0, 0);
  await page.locator('h1').click();
  await page.keyboard.press('Space');
  const held = await countOf('tcp 22');
  await page.waitForTimeout(2_500);
  expect(await countOf('tcp 22')).toBe(held);
  await page.keyboard.press('Space');
  await expect.poll(() => countOf('tcp 22')).toBeGreaterThan(held);
});

test('on the page Traffic, the node filters by parameters and the page by words, and the URL contains both', async () => {
  const { page } = browser;
  await browser.open('traffic');
  const field = page.getByLabel('Filter', { exact: true });
  await field.fill('port:23,554 -telnet');
  await row('tcp 554').waitFor();
  await expect.poll(() => new URL(page.url()).searchParams.get('filter')).toBe('port:23,554 -telnet');
  await page.waitForTimeout(1_000);
  expect(await page.locator('.rows tbody tr').count()).toBe(1);
  await page.reload();
  await row('tcp 554').waitFor();
  expect(await field.inputValue()).toBe('port:23,554 -telnet');
});

test('a click on a source group in the map of the page Traffic filters the traffic by this group', async () => {
  const { page } = browser;
  await browser.open('traffic?tab=map');
  const group = page.getByRole('link', { name: 'office (show only this)' });
  await group.waitFor();
  await page.locator('.map-lines path.deny').first().waitFor({ state: 'attached' });
  await page.getByRole('cell', { name: 'denied', exact: true }).first().waitFor();
  await browser.expectAccessible();
  await group.click();
  await expect.poll(() => new URL(page.url()).searchParams.get('filter')).toBe('office');
  await expect.poll(() => page.getByRole('list', { name: 'Source groups' }).getByRole('listitem').count()).toBe(1);
});

test('the page Traffic lists open flows, and says how many flows a cut will end before the user confirms it', async () => {
  const { page } = browser;
  await browser.open('traffic?tab=flows&filter=dst_port:443');
  await page.locator('.flows tbody tr').first().waitFor();
  await browser.expectAccessible();
  await page.getByRole('button', { name: 'Cut these flows…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('heading', { name: /Cut \d+ flow/ }).waitFor();
  const ended = page.waitForResponse(
    (response) => response.request().method() === 'DELETE' && !response.url().includes('dry_run'),
  );
  await dialog.getByRole('button', { name: 'Cut', exact: true }).click();
  expect((await ended).status()).toBe(200);
  await dialog.waitFor({ state: 'detached' });
});

test('while performance mode is off, the page Traffic says which data is missing, and it shows live traffic again after it is enabled', async () => {
  const { page } = browser;
  await browser.open('traffic');
  await row('tcp 23').waitFor();
  await node.rig.node.request('PUT', SETTING, { enabled: false });
  await page.getByText('The live view is dark').waitFor();
  await node.rig.node.request('PUT', SETTING, { enabled: true });
  await row('tcp 23').waitFor();
});

test('the page Findings groups denied traffic by destination, with the rule that denied it and the reason', async () => {
  const { page } = browser;
  await browser.open('findings?filter=telnet');
  const denied = page.locator('.findings tbody tr', { hasText: 'tcp 23' });
  await denied.waitFor();
  expect(await page.locator('.findings tbody tr').count()).toBe(1);
  expect(await denied.textContent()).toContain('office / no-telnet');
  await browser.expectAccessible();
  await denied.getByRole('link', { name: 'Why?' }).click();
  await page.locator('.walk .matched', { hasText: 'no-telnet' }).waitFor();
});

test('the page Findings lists configuration changes and refused sign-ins separately', async () => {
  const { page } = browser;
  await fetch(`${node.rig.node.url}/api/v1/stats`, { headers: { authorization: 'Bearer wrong' } });
  await browser.open('findings?tab=changes');
  await page.locator('.findings tbody tr', { hasText: 'put active policy' }).waitFor();
  await page.getByRole('link', { name: 'Sign-ins refused' }).click();
  await page.locator('.findings tbody tr').first().waitFor();
  await browser.expectAccessible();
  await page.getByRole('link', { name: 'Gaps and conflicts' }).click();
  await page.locator('.list-size').waitFor();
});

test('the page Traffic lists the flows of the last days with their last verdict, and a filter selects among them', async () => {
  const { page } = browser;
  await browser.open('traffic?tab=seen&filter=dst_port:443');
  const rows = page.getByRole('region', { name: 'Seen flows' }).locator('tbody tr');
  await expect.poll(() => rows.allTextContents()).toEqual([expect.stringMatching(/allowed.*10\.77\.2\.2.*tcp\/443/)]);
  await browser.expectAccessible();
  await browser.open('traffic?tab=seen&filter=verdict:deny&order=count');
  await expect.poll(async () => (await rows.allTextContents()).every((text) => text.includes('denied'))).toBe(true);
  await rows.first().getByRole('link', { name: 'Why?' }).click();
  await page.getByRole('heading', { name: /denied/ }).waitFor();
});
