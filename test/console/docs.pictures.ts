import { mkdirSync, writeFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { linkIn, startTour, type Tour } from '#test/e2e/started-tour.js';
import { type ConsoleBrowser, launchForPictures, openBrowser } from './browser.js';
import { decodePng, encodePng } from './png.js';

const FOLDER = fileURLToPath(new URL('../../docs/images/', import.meta.url));
const COLOURS = 96;
/** The largest size of a picture, in bytes. */
const LARGEST = 150_000;
/** The time with traffic that the chart of the overview shows. */
const TRAFFIC_MS = 200_000;

let tour: Tour;
let chromium: Browser;
let browser: ConsoleBrowser;
let base: string;

beforeAll(async () => {
  mkdirSync(FOLDER, { recursive: true });
  tour = startTour(['--keep']);
  const link = linkIn(await tour.printed('Ctrl-C ends it'));
  base = new URL('/console/', link).href;
  chromium = await launchForPictures();
  browser = await openBrowser('', null, chromium, 1);
  await browser.page.goto(link);
  await browser.page.locator('main h1').waitFor();
  await pause(TRAFFIC_MS);
});
afterAll(async () => {
  await browser?.close();
  await chromium?.close();
  tour.process.kill('SIGTERM');
  expect((await tour.ended()).left).toEqual([]);
});

async function open(path: string): Promise<void> {
  await browser.page.goto(base + path);
  await browser.page.locator('main h1').waitFor();
}

async function take(name: string, colorScheme: 'light' | 'dark' = 'light'): Promise<void> {
  const { page } = browser;
  await page.emulateMedia({ colorScheme });
  await page.mouse.move(0, 0);
  // The rates of a page need two reports of the node, and a map some traffic.
  await pause(8_000);
  const picture = encodePng(decodePng(await page.screenshot({ animations: 'disabled', caret: 'hide' })), COLOURS);
  expect(picture.length).toBeLessThan(LARGEST);
  writeFileSync(`${FOLDER}${name}.png`, picture);
}

test('the overview', async () => {
  await open('');
  await browser.page.getByText('Enforcing').first().waitFor();
  await take('overview');
});

test('why a flow is denied, and what would let it pass', async () => {
  await open('why?src=10.77.1.2&dst=10.77.2.2&proto=tcp&dst_port=23');
  const change = browser.page.getByRole('link', { name: 'Review this change' });
  await change.waitFor();
  await take('why');
  await change.click();
  await browser.page.getByRole('heading', { name: 'Review the change' }).waitFor();
  await take('policy-review');
});

test('traffic as a map and as rows', async () => {
  await open('traffic?tab=map');
  await take('traffic-map');
  await open('traffic');
  await take('traffic-dark', 'dark');
});

test('the statechart of the datapath', async () => {
  await open('statecharts?part=dataplane');
  await browser.page.locator('.chart .state.active').first().waitFor();
  await take('statecharts');
});
