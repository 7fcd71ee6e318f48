import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { DNS_SECTION, dig, startUpstream } from '#test/e2e/names.js';
import { createRig, type NodeRig, policyOf } from '#test/e2e/rig.js';
import { type ConsoleBrowser, openBrowser } from './browser.js';

let rig: NodeRig;
let browser: ConsoleBrowser;

beforeAll(async () => {
  rig = await createRig('cnames', [443], { sections: { dns: DNS_SECTION } });
  await startUpstream(rig);
  await rig.put(policyOf([{ id: 'shop', match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [443] } }]));
  await rig.node.ready();
  await dig(rig, ADDRESSES.nodeLan, 'api.example.com');
  browser = await openBrowser(rig.node.url, await rig.node.token());
});
afterAll(async () => {
  await browser?.close();
  await rig?.remove();
});

test('the page Names of the console shows the addresses that DNS resolved for an allowed name, and the rules that allow them', async () => {
  const { page } = browser;
  await browser.open('names?filter=api');
  const row = page.locator('tbody tr', { hasText: 'api.example.com' });
  await row.waitFor();
  expect(await row.textContent()).toContain(ADDRESSES.server);
  await browser.expectAccessible();
  await row.getByRole('button', { name: 'Rules with the pattern *.example.com' }).click();
  await page.getByRole('complementary').getByRole('link', { name: 'clients / shop' }).waitFor();
  await browser.expectAccessible();
});

test('the page Names explains why a client may or may not look up a DNS name', async () => {
  const { page } = browser;
  await browser.open('names');
  await page.getByLabel('A client').fill(ADDRESSES.client);
  await page.getByLabel('looks up').fill('api.example.com');
  await page.getByRole('button', { name: 'Explain' }).click();
  await page.locator('.walk .matched.allow', { hasText: 'shop' }).waitFor();
  await page.getByLabel('looks up').fill('other.example.org');
  await page.keyboard.press('Enter');
  await page.locator('.walk .matched.deny').waitFor();
});
