import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { ClusterNode } from '#test/cluster/node-cluster.js';
import { RolloutRig } from '#test/cluster/rollout-rig.js';
import { type ConsoleBrowser, openBrowser } from './browser.js';

const ALLOWED = '10.1.0.1';

let rig: RolloutRig;
let browser: ConsoleBrowser;
/** A page of the console of each node. */
let pages: Readonly<Record<'n1' | 'n2', Page>>;

beforeAll(async () => {
  rig = await RolloutRig.start('console');
  await rig.put('n1', ALLOWED, '?wait=all');
  browser = await openBrowser(rig.node('n1').url, rig.node('n1').token);
  const second = await browser.newPage(rig.node('n2').url, rig.node('n2').token);
  pages = { n1: browser.page, n2: second };
});
afterAll(async () => {
  await browser?.close();
  await rig?.remove();
});

const show = async (id: 'n1' | 'n2', path: string): Promise<Page> => {
  const page = pages[id];
  await page.goto(`${rig.node(id).url}/console/${path}`);
  await page.locator('main h1').waitFor();
  return page;
};
const row = (page: Page, { id }: Pick<ClusterNode, 'id'>) =>
  page.locator('table.nodes tbody tr', { hasText: `${id} ` });
const generation = async () => (await rig.generations()).n1 ?? 0;

test('the page Nodes of the console shows each node of the cluster with its readiness checks and its generation', async () => {
  const page = await show('n1', 'nodes');
  const present = await generation();
  for (const node of rig.nodes) {
    await row(page, node).getByText('ready', { exact: true }).waitFor();
    const text = await row(page, node).textContent();
    expect(text).toContain(`generation ${present}`);
    expect(text).toContain('in step');
    expect(text).not.toContain('fails');
  }
  await page.getByText('3 of 3 nodes are ready').waitFor();
  await browser.expectAccessible();
});

test('an unconfirmed change that is applied in the console of one node is shown in the console of another node, where the user can confirm it', async () => {
  const other = await show('n2', 'traffic');
  const rule = { id: 'mail', action: 'allow', match: { dst_ips: ['10.1.0.9'], proto: 'tcp', dst_ports: [25] } };
  const proposal = encodeURIComponent(JSON.stringify({ source_group: 'lan', before: null, rule }));
  const page = await show('n1', `policy?propose=${proposal}`);
  await page.getByRole('button', { name: 'Apply', exact: true }).click();
  await page.getByRole('heading', { name: 'In force. Is everything well?' }).waitFor();
  await other.getByText('is not confirmed').waitFor();
  await other.getByRole('button', { name: 'Keep it' }).click();
  await other.getByText('is not confirmed').waitFor({ state: 'detached' });
  await other.getByText('was kept.').waitFor();
  await page.getByRole('heading', { name: 'Kept' }).waitFor();
  const { text } = await rig.node('n3').request('GET', '/api/v1/policy');
  expect(text).toContain('10.1.0.9');
});

test('each page of the console of each node shows a staged roll-out, which the user can revert or confirm', async () => {
  const before = await rig.agree(1, 5_000);
  await rig.put('n2', '10.1.0.2', '?rollout_share=10&rollout_hold=300');
  const page = await show('n1', '');
  await page.getByText(`Generation ${before + 1} is being rolled out`).waitFor();
  await page.getByRole('link', { name: 'Show the roll-out' }).click();
  await page.getByRole('heading', { name: `Roll-out of generation ${before + 1}` }).waitFor();
  await page.getByText('10 % of the nodes enforce it first').waitFor();
  await page.locator('main li', { hasText: 'n2' }).getByText('well').waitFor();
  await row(page, rig.node('n1')).getByText('behind').waitFor();
  await browser.expectAccessible();
  await page.getByRole('button', { name: `Go back to ${before}` }).click();
  await page.getByText(`Generation ${before + 1} went back`).waitFor();
  expect(await rig.agree(before + 2, 5_000)).toBe(before + 2);

  await rig.put('n2', '10.1.0.3', '?rollout_share=10&rollout_hold=300');
  const other = await show('n2', 'nodes');
  await other.getByRole('button', { name: 'All nodes now' }).click();
  await other.getByRole('heading', { name: /Roll-out/ }).waitFor({ state: 'detached' });
  expect(await rig.agree(before + 4, 5_000)).toBeGreaterThan(before + 3);
});

test('in a cluster, the console offers to apply a change to a part of the nodes first, and then only these nodes enforce it', async () => {
  const before = await generation();
  const rule = { id: 'staged', action: 'allow', match: { dst_ips: ['10.1.0.7'], proto: 'tcp', dst_ports: [26] } };
  const proposal = encodeURIComponent(JSON.stringify({ source_group: 'lan', before: null, rule }));
  const page = await show('n1', `policy?propose=${proposal}`);
  await page.getByLabel('In stages: a part of the nodes first, all of them after').check();
  await page.getByLabel('% of the nodes').fill('40');
  await browser.expectAccessible();
  await page.getByRole('button', { name: 'Apply', exact: true }).click();
  await page.getByRole('heading', { name: 'Rolled out to the first nodes' }).waitFor();
  await page.getByText(`Generation ${before + 1} is being rolled out.`).waitFor();
  const { pending } = (await rig.node('n3').request('GET', '/api/v1/policy/pending')).body as {
    pending: { kind: string; share: number };
  };
  expect([pending.kind, pending.share]).toEqual(['rollout', 40]);
  await page.getByRole('link', { name: 'Show the roll-out' }).click();
  await page.getByRole('button', { name: 'All nodes now' }).click();
  await page.getByText(`Generation ${before + 1} is rolled out.`).waitFor({ state: 'detached' });
});

test('the console of each node shows the traffic and the findings of all nodes, with the name of the node', async () => {
  const flood = rig.flood('n2');
  onTestFinished(() => void flood.kill());
  const page = await show('n1', 'traffic?scope=cluster');
  await page.locator('.rows tbody tr', { hasText: 'udp 9' }).first().waitFor();
  await page.locator('.rows tbody tr', { hasText: 'udp 9' }).getByRole('button').first().click();
  await page.getByRole('complementary').getByText('n2').waitFor();
  await page.getByLabel('Nodes').selectOption('this node');
  await page.getByText('messages a second').waitFor();
  await show('n1', 'findings');
  await page.locator('tbody tr', { hasText: '10.77.2.2' }).first().waitFor();
});

test('the console reports a killed node within 5 s at the other nodes, and also reports that it is back', async () => {
  const node = rig.node('n3');
  const page = await show('n1', 'nodes');
  await row(page, node).getByText('ready', { exact: true }).waitFor();
  await node.end('SIGKILL');
  const silent = row(page, node).getByText('its machine enforces the last policy');
  await silent.waitFor({ timeout: 5_000 });
  await page.getByText('2 of 3 nodes are ready').waitFor();
  await browser.expectAccessible();
  await show('n1', 'traffic?scope=cluster');
  await page.getByText(/no messages of n3/).waitFor();
  node.start();
  await show('n1', 'nodes');
  await row(page, node).getByText('ready', { exact: true }).waitFor();
});

test('while etcd is unreachable, the console shows the nodes that it knows, and that they enforce the last policy', async () => {
  const present = await generation();
  const page = await show('n1', 'nodes');
  for (const { name } of rig.etcd.members) await rig.etcd.signal(name, 'SIGSTOP');
  try {
    await page.getByText('This node has no connection to the store: it enforces the last policy.').waitFor();
    await page.getByText('0 of 3 nodes are ready').waitFor();
    for (const node of rig.nodes) {
      await row(page, node).getByText('not ready', { exact: true }).waitFor();
      expect(await row(page, node).textContent()).toContain(`generation ${present}`);
    }
    await browser.expectAccessible();
  } finally {
    for (const { name } of rig.etcd.members) await rig.etcd.signal(name, 'SIGCONT');
  }
  await page.getByText('3 of 3 nodes are ready').waitFor();
  // Chromium reports the responses of /ready while checks fail.
  expect(browser.faults.splice(0).filter((fault) => !fault.includes('status of 503'))).toEqual([]);
});
