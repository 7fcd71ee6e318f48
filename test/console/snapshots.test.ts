import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { DNS_SECTION, dig, startUpstream } from '#test/e2e/names.js';
import { createRig, type NodeRig } from '#test/e2e/rig.js';
import { type ConsoleBrowser, launchForPictures, openBrowser } from './browser.js';
import { POLICY } from './console-node.js';
import { differenceOf } from './snapshots.js';

/** The pages of the console, with parameters that give a page content. */
const PAGES = [
  '',
  'why?src=10.77.1.2&dst=10.77.2.2&proto=tcp&dst_port=23',
  'policy',
  'ask',
  'traffic?filter=port:23',
  'findings',
  'names',
  'inspection',
  'nodes',
  'integrations',
  'statecharts',
  'settings',
];
const nameOf = (path: string): string => path.split('?')[0] || 'overview';
const WEB = { id: 'shop', action: 'allow', match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [443] } };

let rig: NodeRig;
let chromium: Browser;
let browser: ConsoleBrowser;

beforeAll(async () => {
  rig = await createRig('snapshots', [80, 23, 554], { sections: { dns: DNS_SECTION } });
  await startUpstream(rig);
  const [office] = POLICY.source_groups;
  await rig.put({ ...POLICY, source_groups: [{ ...office, rules: [WEB, ...(office?.rules ?? [])] }] });
  await rig.node.ready();
  const { status } = await rig.node.request('POST', '/api/v1/settings/tls-intercept-ca/generate');
  expect(status).toBe(201);
  await dig(rig, ADDRESSES.nodeLan, 'api.example.com');
  await connect(23, 554, 80);
  chromium = await launchForPictures();
  browser = await openBrowser(rig.node.url, await rig.node.token(), chromium, 0.5);
});
afterAll(async () => {
  await browser?.close();
  await chromium?.close();
  await rig?.remove();
});

async function connect(...ports: number[]): Promise<void> {
  for (const port of ports) await rig.tcp(port);
}

test('each page in the navigation of the console has a stored screenshot', async () => {
  await browser.open('');
  const links = browser.page.getByRole('navigation').getByRole('listitem').getByRole('link');
  const paths = await links.evaluateAll((each) => each.map((link) => link.getAttribute('href')));
  expect(PAGES.map((path) => `/console/${path.split('?')[0]}`)).toEqual(paths);
});

test.each(PAGES.map((path) => ({ path, name: nameOf(path) })))(
  'the console page $name equals its stored screenshots in both color themes, except for numbers and times',
  async ({ path, name }) => {
    await browser.open(path);
    if (name === 'traffic') {
      await browser.page.locator('.stream-state', { hasText: 'live' }).waitFor();
      // A denied connection has no end: no later message changes the order of rows.
      await connect(23);
      await browser.page.locator('.rows tbody tr', { hasText: 'no-telnet' }).waitFor();
    }
    for (const colorScheme of ['light', 'dark'] as const) {
      await browser.page.emulateMedia({ colorScheme });
      expect(await differenceOf(browser.page, `${name}-${colorScheme}`)).toBeNull();
    }
  },
);
