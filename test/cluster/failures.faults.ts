import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ClusterKeys } from '#cluster/keys.js';
import { CLUSTER_RECORDS } from '#cluster/records.js';
import { Bodies } from '#store/policies/bodies.js';
import { encodeJson } from '#store/records/json-value.js';
import { CERTIFICATE } from '#test/api/certificate.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { codeOf, FailureRig, HOUR_MS, policyOf, put, SOON, textAt } from './failure-rig.js';
import type { Reply } from './node-cluster.js';

const keys = new ClusterKeys('/weir');

let rig: FailureRig;
beforeAll(async () => {
  rig = await FailureRig.start('fail');
});
afterAll(() => rig?.remove());

/** GET operations whose response is about the node that responds, or about its traffic. */
const OF_NODE =
  /^\/(health|ready|metrics|openapi)|\/(node|stats|debug|flows|hits|dns-cache|audit|wiretap|explain|impact|status|stream)\b/;

describe('each GET operation on shared state', () => {
  test('each GET operation on shared state returns the same response at each of three nodes', async () => {
    await put(rig.plain, '10.1.0.1');
    const body = { mode: 'enforce', policy: { default_policy: 'deny', source_groups: [] } };
    await rig.small.request('PUT', '/api/v1/policies/by-name/second?activate=false', body);
    await put(rig.early, '10.1.0.2');
    const integration = {
      kind: 'kubernetes',
      api_server_url: 'https://192.0.2.1:6443',
      ca_cert_pem: CERTIFICATE,
      service_account_token: 'a-secret-token',
    };
    const made = await rig.early.request('POST', '/api/v1/integrations', { name: 'prod', ...integration });
    expect([made.status, made.text]).toEqual([201, expect.any(String)]);
    expect((await rig.plain.request('POST', '/api/v1/settings/tls-intercept-ca/generate')).status).toBe(201);
    await rig.small.request('PUT', '/api/v1/settings/performance-mode', { enabled: true });
    await rig.early.request('POST', '/api/v1/tokens', { subject: 'ci', role: 'readonly' });
    const never = { from: ['10.9.0.1'], to: ['10.9.0.2'], proto: 'tcp', ports: [22] };
    await rig.plain.request('PUT', '/api/v1/assertions', { assertions: [{ id: 'no-ssh', never }] });
    await rig.allHave('10.1.0.2');
    await pause(500);

    const { paths } = (await rig.plain.request('GET', '/openapi/service-v1.json')).body as {
      readonly paths: Readonly<Record<string, { readonly get?: unknown }>>;
    };
    const { items } = (await rig.plain.request('GET', '/api/v1/policies')).body as {
      readonly items: { id: string; revision: number }[];
    };
    const { id = '', revision = 0 } = items[0] ?? {};
    const values = { id, revision: `${revision}`, name: 'prod', group_id: 'lan' };
    const shared = Object.entries(paths).filter(([path, { get }]) => get !== undefined && !OF_NODE.test(path));
    const asked: string[] = [];
    for (const [path] of shared) {
      const name = path.includes('policies/by-name') ? 'second' : values.name;
      const own = path.includes('assertions') ? { name, id: 'no-ssh' } : { name };
      const url = path.replace(/\{(\w+)\}/g, (_, key: string) => ({ ...values, ...own })[key as 'id'] ?? `no ${key}`);
      const read = await Promise.all(rig.nodes.map((node) => node.request('GET', url)));
      const shown = read.map(({ status, text, headers }) =>
        // Compare the responses without the id of the node that responds.
        [status, headers.get('etag'), text.replace(/"node_id":"n\d"/, '')].join(' '),
      );
      expect([url, new Set(shown).size, shown[0]?.slice(0, 3)]).toEqual([url, 1, '200']);
      asked.push(path);
    }
    expect(asked.length).toBeGreaterThan(8);
  });
});

describe('a node whose clock is an hour ahead', () => {
  test('each node reports the clock offset of a node whose clock is an hour ahead', async () => {
    for (const node of rig.nodes) {
      const { body } = await node.request('GET', '/api/v1/cluster/nodes');
      const offsets = [0, 0, HOUR_MS / 1_000].map((offset) => ({ clock_offset: offset }));
      expect(body).toMatchObject({ items: offsets });
    }
  });

  test('a node whose clock is an hour ahead takes part in the cluster, and its writes get consecutive revisions with the writes of other nodes', async () => {
    const revisionIn = (text: string) => Number(/"revision":(\d+)/.exec(text)?.[1]);
    const writes: Reply[] = [];
    for (const [index, node] of [rig.plain, rig.early, rig.plain].entries()) {
      expect((await put(node, `10.2.0.${index}`)).status).toBe(200);
      writes.push(await node.request('GET', '/api/v1/policies/by-name/default'));
    }
    await rig.allHave('10.2.0.2');
    const times = writes.map(({ text }) => Date.parse(/"updated_at":"([^"]+)"/.exec(text)?.[1] ?? ''));
    expect((times[1] ?? 0) - (times[2] ?? 0)).toBeGreaterThan(HOUR_MS - 60_000);
    const [first = 0, ...later] = writes.map(({ text }) => revisionIn(text));
    expect(later).toEqual([first + 1, first + 2]);
    for (const node of rig.nodes) await node.takesPart();
  });
});

describe('a policy that one node cannot hold', () => {
  const large = () =>
    policyOf(
      ...Array.from({ length: 15_000 }, (_, index) => `10.${100 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`),
    );

  test('a policy that is too large for one node is refused with 409, which names the node, the need and the limit, and changes nothing', async () => {
    const before = await textAt(rig.plain);
    const refused = await rig.plain.request('PUT', '/api/v1/policy', large());
    expect(codeOf(refused)).toEqual([409, 'member_refused']);
    expect((refused.body as { readonly detail: string }).detail).toMatch(
      /^the node n2 refused the policy: .*\d+ .*8192/,
    );
    expect(await Promise.all(rig.nodes.map(textAt))).toEqual([before, before, before]);
    expect((await put(rig.plain, '10.3.0.1')).headers.get('weir-nodes')).toBe('3/3');
  });

  test('if a policy that is too large for one node is written without a rehearsal (a trial at each node), that node keeps its earlier policy until a later policy fits', async () => {
    const generation = async () =>
      Number((await rig.small.request('GET', '/api/v1/cluster')).text.match(/"generation":(\d+)/)?.[1]);
    const before = await generation();
    expect((await rig.plain.request('PUT', '/api/v1/policy?rehearse=false', large())).status).toBe(200);
    const { detail } = await rig.small.until('policy_replication', 'lagging');
    expect(detail).toContain(`generation ${before} is in force`);
    const reason = async () => (await rig.small.check('policy_ready')).detail;
    await expect.poll(reason).toContain('8192');
    expect(await generation()).toBe(before);
    expect((await put(rig.early, '10.3.0.2')).status).toBe(200);
    await rig.small.until('policy_replication', 'in_step');
    await rig.allHave('10.3.0.2');
  });
});

describe('a policy that this build cannot read, of a node with a newer build', () => {
  test('each node votes against a policy of a newer build that the node cannot read, so that the write gets 409', async () => {
    const { items } = (await rig.plain.request('GET', '/api/v1/policies')).body as {
      readonly items: { active: boolean }[];
    };
    const text = JSON.stringify({ default_policy: 'deny', source_groups: [], field_of_the_future: true });
    const { sha256, operations } = await new Bodies(createMemoryStore()).whole(Buffer.from(text));
    const bodies = operations.map((each) => [
      each.key,
      'value' in each ? Buffer.from(each.value).toString('base64') : '',
    ]);
    const record = items.find(({ active }) => active);
    const proposal = { generation: 999, record, bodySha256: sha256, bodies: Object.fromEntries(bodies) as object };
    const lease = await rig.client.grant(60, SOON);
    const value = encodeJson({ node: 'newer', proposal });
    const lock = { type: 'put', key: keys.lockEntry('t'), value, lease } as const;
    await rig.client.transact({ when: [], apply: [lock] }, SOON);
    const votes = async () =>
      (await rig.client.range(keys.votesFor('newer'), SOON)).entries
        .map(({ key, value }) => CLUSTER_RECORDS.vote.read(keys.nameOf(key), value))
        .map(({ node, refusal }) => `${node} ${refusal?.code ?? 'staged'}`);
    try {
      await expect.poll(votes).toEqual(['n1', 'n2', 'n3'].map((node) => `${node} invalid_policy`));
    } finally {
      await rig.client.transact({ when: [], apply: [{ type: 'delete', key: keys.lockEntry('t') }] }, SOON);
    }
    expect((await put(rig.plain, '10.3.1.1')).status).toBe(200);
  });
});

describe('a write that loses the write lock before its commit', () => {
  /**
   * Takes the write lock from a write at `plain`, which waits for the vote of a frozen node. Then calls
   * `act`.
   */
  async function disturbed(write: Promise<Reply>, act: () => Promise<unknown> = async () => {}): Promise<Reply> {
    rig.early.signal('SIGSTOP');
    await pause(400);
    rig.etcd.etcdctl('del', '--prefix', '/weir/shared/turn/');
    await act();
    return write.finally(() => rig.early.signal('SIGCONT'));
  }

  test('a policy write that loses the write lock before its commit is prepared again on the newest policy, and succeeds or gets 412', async () => {
    expect((await put(rig.plain, '10.4.0.1')).status).toBe(200);
    const etag = (await rig.plain.request('GET', '/api/v1/policy')).headers.get('etag') ?? '';
    rig.early.signal('SIGSTOP');
    const write = disturbed(put(rig.plain, '10.4.0.2', { 'if-match': etag }), async () => {
      expect((await put(rig.small, '10.4.0.3', {}, '?rehearse=false')).status).toBe(200);
    });
    expect(codeOf(await write)).toEqual([412, 'precondition_failed']);
    await rig.early.takesPart();
    rig.early.signal('SIGSTOP');
    const repeated = await disturbed(put(rig.plain, '10.4.0.4'));
    expect([repeated.status, repeated.headers.get('weir-warnings')]).toEqual([200, expect.any(String)]);
    await rig.early.takesPart();
    await rig.allHave('10.4.0.4');
  });
});
