import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig } from '#test/e2e/rig.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { HAS_KUBE_API, KubeApi } from '#test/kubernetes/kube-api.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { type ConsoleBrowser, openBrowser } from './browser.js';

/** The API of the node in its own namespace. The API server of Kubernetes and the browser are there too. */
const API = 'http://127.0.0.1:8080';
const POLICY = {
  default_policy: 'deny',
  source_groups: [
    {
      id: 'web',
      mode: 'enforce',
      sources: { kubernetes: [{ integration: 'prod', pod_selector: { match_labels: { app: 'web' } } }] },
      rules: [{ id: 'out', action: 'allow', match: { dst_ips: [ADDRESSES.server] } }],
    },
  ],
};

skipUnless(HAS_KUBE_API, LACKS.kubeApi).describe('the page Integrations', () => {
  let rig: NodeRig;
  let kube: KubeApi;
  let browser: ConsoleBrowser;
  let page: Page;
  let leave: () => void;

  beforeAll(async () => {
    rig = await createRig('integrations', []);
    leave = enterNamespace(rig.topology.node.name);
    kube = await KubeApi.start();
    browser = await openBrowser(API, await rig.node.token());
    page = browser.page;
  });
  afterAll(async () => {
    await browser?.close();
    await kube?.remove();
    leave?.();
    await rig?.remove();
  });

  const put = async (policy: object) => {
    const headers = { authorization: `Bearer ${await rig.node.token()}` };
    const reply = await browser.context.request.put(`${API}/api/v1/policy`, { headers, data: policy });
    expect(reply.status(), await reply.text()).toBe(200);
  };
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const integration = () => page.locator('section.panel', { has: page.getByRole('heading', { name: /^prod/ }) });

  it('the page Integrations of the console adds an integration, and reports that the Kubernetes API server refuses its token', async () => {
    await browser.open('integrations');
    await page.getByText('No integration yet').waitFor();
    await page.getByLabel('Name, as source groups name it').fill('prod');
    await page.getByLabel('API server').fill(kube.url);
    await page.getByLabel('Certificates of its CA').fill(kube.certificate.ca);
    await page.getByLabel('Token of a service account').fill('a-wrong-token');
    await button('Add it').click();
    await page.getByText('Stored prod.').waitFor();
    await page.locator('main').getByText(/401/).first().waitFor();
    await put(POLICY);
    await integration().getByText('the API server refuses the token').waitFor();
    await integration().getByText('no: its group fails closed').waitFor();
    await integration()
      .getByText(/^Last error/)
      .waitFor();
    await browser.expectAccessible();
  });

  it('the page Integrations replaces the token, and shows a pod as a member of its source group as soon as the pod exists', async () => {
    const token = await kube.createAccount('weir', ['pods', 'nodes', 'namespaces']);
    await button('Replace…').click();
    await integration().getByLabel('Token of a service account').fill(token);
    await button('Replace it').click();
    await integration().getByText('Stored prod.').waitFor();
    await button('Replace…').click();
    await integration().getByText('watching', { exact: true }).waitFor();
    await page.getByText('The selectors of this group select nobody at present.').waitFor();
    await kube.createPod('web-1', { labels: { app: 'web' } });
    const ip = ADDRESSES.client;
    await kube.setStatus('web-1', { phase: 'Running', podIP: ip, podIPs: [{ ip }] });
    const member = page.locator('tbody tr', { hasText: 'web-1' });
    await member.waitFor();
    expect(await member.textContent()).toContain(ip);
    await integration().getByText('Knows 1 pod,').waitFor();
    await browser.expectAccessible();
  });

  it('while the Kubernetes API server is unreachable, the page Integrations says that its objects can be outdated, and keeps showing the members', async () => {
    await kube.signal('SIGKILL');
    await integration().getByText('They stay in force.').waitFor();
    await page.locator('tbody tr', { hasText: 'web-1' }).waitFor();
    await integration()
      .getByText(/ECONNREFUSED|ended|closed|connect/)
      .first()
      .waitFor();
  });

  it('the page Integrations deletes an integration only if no selector of the policy uses it', async () => {
    const confirm = async () => {
      await button('Delete').first().click();
      const dialog = page.getByRole('dialog');
      await dialog.getByRole('textbox').fill('prod');
      await dialog.getByRole('button', { name: 'Delete' }).click();
      return dialog;
    };
    const refused = await confirm();
    await refused.getByRole('alert').waitFor();
    await refused.getByRole('button', { name: 'Cancel' }).click();
    await put({ default_policy: 'deny', source_groups: [] });
    await confirm();
    await page.getByText('No integration yet').waitFor();
    // Chromium reports the responses of /ready while a selector is not resolved, and a poll of the deleted
    // integration.
    expect(browser.faults.splice(0).filter((fault) => !/status of (404|503)/.test(fault))).toEqual([]);
  });
});
