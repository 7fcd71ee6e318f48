import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { built } from '#threads/built-file.js';
import { type ConsoleBrowser, openBrowser } from './browser.js';
import { type ConsoleNode, createConsoleNode } from './console-node.js';

/** The largest size of the files of the first page, compressed, in bytes. */
const FIRST_LOAD = 40 * 1024;
/** The largest size of all files, compressed, in bytes. */
const WHOLE = 300 * 1024;

let node: ConsoleNode;
let browser: ConsoleBrowser;

beforeAll(async () => {
  node = await createConsoleNode('console');
});
afterEach(async () => {
  await browser.close();
});
afterAll(async () => {
  await node.remove();
});

const signedIn = async () => openBrowser(node.rig.node.url, await node.rig.node.token());

test('a sign-in link signs in a browser once, and the address keeps no code', async () => {
  const { body } = await node.rig.node.request('POST', '/api/v1/session/link');
  const { code } = body as { readonly code: string };
  browser = await openBrowser(node.rig.node.url, null);
  await browser.page.goto(`${node.rig.node.url}/console/#code=${code}`);
  await browser.page.getByRole('heading', { name: 'Overview' }).waitFor();
  expect(browser.page.url()).not.toContain(code);
  await browser.page.getByRole('button', { name: /Sign out/ }).click();
  await browser.page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await browser.page.goto(`${node.rig.node.url}/console/?again#code=${code}`);
  await browser.page.getByRole('alert').waitFor();
  // The browser reports the refused sign-in as an error.
  expect(browser.faults.splice(0)).toEqual([expect.stringContaining('401')]);
});

test('the overview says that the node enforces, and names the rule that nothing uses', async () => {
  browser = await signedIn();
  await browser.open('');
  await browser.page.getByText('Enforcing').first().waitFor();
  await browser.page.getByRole('link', { name: 'office / old-ftp' }).waitFor();
  await browser.expectAccessible();
});

test('the page Why explains a denied flow from a pasted log line, and proposes a rule that lets the flow pass', async () => {
  browser = await signedIn();
  await browser.open('why');
  await browser.page.getByLabel('Any line with two addresses').fill('SRC=10.77.1.2 DST=10.77.2.2 PROTO=TCP DPT=23');
  await browser.page.getByText('rule no-telnet of source group office is the first that matches').waitFor();
  await browser.page.getByRole('link', { name: 'Review this change' }).waitFor();
  await browser.expectAccessible();
});

test('a killed node is reported within 5 s, with the data of before, and its return within 5 s after the start', async () => {
  browser = await signedIn();
  await browser.open('');
  await browser.page.getByText('Enforcing').first().waitFor();
  await node.rig.node.end('SIGKILL');
  const silence = browser.page.getByText('The node does not respond', { exact: true });
  await silence.waitFor({ timeout: 5_000 });
  await browser.page.getByRole('heading', { name: 'Is it well?' }).waitFor();
  await node.rig.node.restart();
  await node.rig.node.ready();
  await silence.waitFor({ state: 'detached', timeout: 5_000 });
  // The browser reports each request without a response as an error.
  browser.faults.splice(0);
});

test('a page of another origin can neither read the API with the cookie of a session, nor show the console in a frame', async () => {
  browser = await signedIn();
  const { url } = node.rig.node;
  const other = url.replace('127.0.0.1', 'localhost');
  await browser.page.goto(`${other}/health`);
  const outcome = await browser.page.evaluate(async (target) => {
    const read = await fetch(`${target}/api/v1/policy`, { credentials: 'include' }).then(
      () => 'a response',
      () => 'refused',
    );
    return read;
  }, url);
  expect(outcome).toBe('refused');
  const { headers } = await fetch(`${url}/console/`);
  expect(headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
  browser.faults.splice(0);
});

test('the document of the console names at most 40 kB of files, and the whole console has at most 300 kB, compressed', async () => {
  browser = await signedIn();
  const folder = built('console');
  const sizeOf = (name: string) => statSync(join(folder, `${name}.gz`)).size;
  // The chart of the overview is not in this list: the page loads it after the first paint.
  const document = await (await fetch(`${node.rig.node.url}/console/`)).text();
  const files = [...document.matchAll(/\/console\/(assets\/[^"]+)"/g)].map(([, name = '']) => name);
  expect(files.some((name) => name.endsWith('.js'))).toBe(true);
  const first = ['index.html', ...files].map(sizeOf).reduce((sum, size) => sum + size, 0);
  expect(first).toBeLessThanOrEqual(FIRST_LOAD);
  const all = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.gz'));
  expect(all.map((name) => statSync(join(folder, name)).size).reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(
    WHOLE,
  );
});
