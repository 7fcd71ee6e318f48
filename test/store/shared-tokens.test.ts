import { existsSync, mkdirSync, readFileSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { StoreError } from '#store/store-error.js';
import { type Authority, createAuthority } from '#store/tokens/authority.js';
import { SharedTokens } from '#store/tokens/shared-tokens.js';
import { createTokenStore } from '#store/tokens/token-store.js';
import { FakeSharedStore } from './fake-shared-store.js';
import { temporaryFolder } from './temporary-folder.js';

const REQUEST = { subject: 'ci', role: 'readonly', expiresInMs: null } as const;
type FakeNode = Awaited<ReturnType<FakeSharedStore['nodeOf']>>;
type Node = { readonly node: FakeNode; readonly dataDir: string; readonly authority: Authority };

async function opened(node: FakeNode, dataDir: string, id: string): Promise<Authority> {
  const tokens = await SharedTokens.load(node);
  return createAuthority(createTokenStore(node.kv), dataDir, { node: id, shared: tokens });
}

async function nodeOf(shared: FakeSharedStore, id: string): Promise<Node> {
  const node = await shared.nodeOf();
  const dataDir = temporaryFolder();
  return { node, dataDir, authority: await opened(node, dataDir, id) };
}

const settled = async (...nodes: readonly Node[]): Promise<void> => {
  for (let round = 0; round < 5; round++) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    for (const { node } of nodes) await node.settled();
  }
};
const revoked = { kind: 'refused', reason: 'revoked' };

/** Returns two nodes of a cluster, and a token that both accept. */
async function issuedBy(issuer: 'a' | 'b') {
  const shared = new FakeSharedStore();
  const [a, b] = [await nodeOf(shared, 'a'), await nodeOf(shared, 'b')];
  const { token, record } = await { a, b }[issuer].authority.issue(REQUEST);
  await settled(a, b);
  return { shared, a, b, token, record };
}

/** Returns two nodes of a cluster, and a token that both accept. Timers are fake from then on. */
async function issuedWithFakeTimers() {
  const issued = await issuedBy('a');
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  return issued;
}

/** Returns two nodes of a cluster, and a token that node a has revoked. */
async function revokedByA(issuer: 'a' | 'b') {
  const issued = await issuedBy(issuer);
  await issued.a.authority.revoke(issued.record.id);
  await settled(issued.a, issued.b);
  return issued;
}

describe('the tokens of a cluster', () => {
  it('a token of a cluster is accepted by each node, and each node signs with a key of its own', async () => {
    const { shared, a, b, token, record } = await issuedBy('a');
    expect(await b.authority.verify(token)).toEqual({
      kind: 'accepted',
      identity: { id: record.id, keyId: expect.any(String), subject: 'ci', role: 'readonly' },
    });
    const admin = readFileSync(join(a.dataDir, 'admin.token'), 'utf8').trim();
    expect(await b.authority.verify(admin)).toMatchObject({ kind: 'accepted' });
    expect(shared.keys('token-key/')).toHaveLength(2);
    const ids = (authority: Authority) =>
      authority
        .list()
        .map(({ id }) => id)
        .sort();
    expect(ids(a.authority)).toEqual(ids(b.authority));
    expect(ids(a.authority)).toHaveLength(3);
  });

  it('a token is refused if no node of the cluster has its signing key, or if its key id is that of another key', async () => {
    const [a, b] = [await nodeOf(new FakeSharedStore(), 'a'), await nodeOf(new FakeSharedStore(), 'b')];
    const { token } = await a.authority.issue(REQUEST);
    await settled(a, b);
    expect(await b.authority.verify(token)).toEqual({ kind: 'refused', reason: 'bad_signature' });
    const [, claims, signature] = token.split('.');
    const ours = (await b.authority.issue(REQUEST)).token.split('.')[0];
    expect(await b.authority.verify(`${ours}.${claims}.${signature}`)).toEqual({
      kind: 'refused',
      reason: 'bad_signature',
    });
  });

  it('a token that one node has revoked is refused by each node, also if that node had no connection to the cluster then', async () => {
    const { a, b, token, record } = await issuedBy('a');
    b.node.disconnect();
    expect(await b.authority.revoke(record.id)).toBe(true);
    expect(await b.authority.verify(token)).toEqual(revoked);
    await settled(a);
    expect(await a.authority.verify(token)).toMatchObject({ kind: 'accepted' });
    await b.node.connect();
    await settled(a, b);
    expect(await a.authority.verify(token)).toEqual(revoked);
  });

  it('a token stays revoked after a restart of the node, even if the cluster has lost the revocation', async () => {
    const { shared, a, b, token, record } = await revokedByA('a');
    const key = `cluster-token/${record.id}`;
    const valid = Buffer.from(JSON.stringify({ ...record, revoked_at: null }));
    await expect.poll(() => existsSync(join(b.dataDir, 'token.revocations'))).toBe(true);
    for (const each of [a, b]) each.authority.close();
    await a.node.put(key, valid);
    await settled(a, b);
    const again = await opened(b.node, b.dataDir, 'b');
    expect(await again.verify(token)).toEqual(revoked);
    await settled(a, b);
    expect((shared.json(key) as { revoked_at: string | null }).revoked_at).not.toBeNull();
  });

  it('a node with a full disk refuses a token that another node revoked, and stores the revocation when the disk has space', async () => {
    const { a, b, token, record } = await issuedWithFakeTimers();
    // Make the write of the new file fail: a folder is at its path.
    const draft = join(b.dataDir, 'token.revocations.new');
    mkdirSync(draft);
    await a.authority.revoke(record.id);
    await expect.poll(() => b.authority.verify(token)).toEqual(revoked);
    await expect.poll(() => vi.getTimerCount()).toBe(1);
    await vi.advanceTimersByTimeAsync(5_000);
    rmdirSync(draft);
    await expect
      .poll(async () => {
        await vi.advanceTimersByTimeAsync(5_000);
        return existsSync(join(b.dataDir, 'token.revocations'));
      })
      .toBe(true);
    expect(readFileSync(join(b.dataDir, 'token.revocations'), 'utf8')).toBe(`${record.id}\n`);
    for (const { authority } of [a, b]) authority.close();
    expect(vi.getTimerCount()).toBe(0);
  });

  it('a token that a node with a full disk revokes is refused by the other nodes, and the revocation is stored later', async () => {
    const { a, b, token, record } = await issuedWithFakeTimers();
    const draft = join(a.dataDir, 'token.revocations.new');
    mkdirSync(draft);
    await expect(a.authority.revoke(record.id)).rejects.toThrow();
    await expect.poll(() => b.authority.verify(token)).toEqual(revoked);
    const stored = async () => (await createTokenStore(a.node.kv).list()).find(({ id }) => id === record.id);
    expect(await stored()).toMatchObject({ revoked_at: null });
    rmdirSync(draft);
    await expect
      .poll(async () => {
        await vi.advanceTimersByTimeAsync(5_000);
        return (await stored())?.revoked_at;
      })
      .not.toBeNull();
    for (const { authority } of [a, b]) authority.close();
    expect(vi.getTimerCount()).toBe(0);
  });

  it('a token stays revoked if the revocation record of a node is damaged, until the node reads the revocation from etcd again', async () => {
    const { shared, a, b, token, record } = await revokedByA('b');
    const kept = join(b.dataDir, 'token.revocations');
    await expect.poll(() => existsSync(kept)).toBe(true);
    b.authority.close();
    b.node.disconnect();
    rmSync(kept);
    const key = `cluster-token/${record.id}`;
    const intact = { ...b.node.kv };
    b.node.kv.iterate = async function* (range) {
      for await (const entry of intact.iterate(range)) {
        if (entry[0] === key) throw new StoreError('store_damaged', `read ${key}`, { key });
        yield entry;
      }
    };
    const again = await opened(b.node, b.dataDir, 'b');
    expect(await again.verify(token)).toEqual(revoked);
    Object.assign(b.node.kv, intact);
    await b.node.kv.delete(key, { sync: true });
    await b.node.connect();
    await settled(a, b);
    expect(await again.verify(token)).toEqual(revoked);
    expect((shared.json(key) as { revoked_at: string | null }).revoked_at).not.toBeNull();
  });

  it('a token is shared again after a write to etcd failed while the node was connected', async () => {
    const { a, b } = await issuedWithFakeTimers();
    const failing = vi
      .spyOn(a.node, 'batch')
      .mockRejectedValue(new StoreError('outcome_unknown', 'the write is in etcd as revision 8'));
    const { token } = await a.authority.issue(REQUEST);
    await expect.poll(() => vi.getTimerCount()).toBe(1);
    failing.mockRestore();
    expect(await b.authority.verify(token)).toEqual({ kind: 'refused', reason: 'unknown' });
    await vi.advanceTimersByTimeAsync(5_000);
    await expect.poll(() => b.authority.verify(token)).toMatchObject({ kind: 'accepted' });
    for (const { authority } of [a, b]) authority.close();
    expect(vi.getTimerCount()).toBe(0);
  });

  it('a token that a node issues without etcd is valid there at once, and on each node when etcd is back', async () => {
    const shared = new FakeSharedStore();
    const [a, b] = [await nodeOf(shared, 'a'), await nodeOf(shared, 'b')];
    a.node.disconnect();
    const { token } = await a.authority.issue(REQUEST);
    expect(await a.authority.verify(token)).toMatchObject({ kind: 'accepted' });
    await a.node.connect();
    await settled(a, b);
    expect(await b.authority.verify(token)).toMatchObject({ kind: 'accepted' });
  });

  it('a token whose record in the cluster cannot be read is refused as revoked, also after a restart, until the unreadable record is removed', async () => {
    const { shared, a, b, token, record } = await issuedBy('a');
    const key = `cluster-token/${record.id}`;
    for (const value of ['garbage', '{}', JSON.stringify({ ...record, revoked_at: 3 })]) {
      await b.node.put(key, Buffer.from(value));
      await settled(a, b);
      for (const { authority } of [a, b]) expect([value, await authority.verify(token)]).toEqual([value, revoked]);
    }
    b.authority.close();
    const again = await opened(b.node, b.dataDir, 'b');
    expect(await again.verify(token)).toEqual(revoked);
    expect(shared.keys('cluster-token/')).toContain(key);
    await b.node.delete(key);
    await settled(a, b);
    for (const authority of [a.authority, again])
      expect(await authority.verify(token)).toMatchObject({ kind: 'accepted' });
    expect(shared.json(key)).toEqual(record);
  });

  it('a token of another node is refused while its signing key, or the list of removed nodes, cannot be read', async () => {
    const shared = new FakeSharedStore();
    const [a, b] = [await nodeOf(shared, 'a'), await nodeOf(shared, 'b')];
    const { token } = await a.authority.issue(REQUEST);
    await settled(a, b);
    await b.node.put('removed-node/zzz', Buffer.from('{}'));
    await settled(a, b);
    expect(await b.authority.verify(token)).toEqual({ kind: 'refused', reason: 'bad_signature' });
    expect(await a.authority.verify(token)).toMatchObject({ kind: 'accepted' });
    await b.node.delete('removed-node/zzz');
    await settled(a, b);
    expect(await b.authority.verify(token)).toMatchObject({ kind: 'accepted' });

    const keys = shared.keys('token-key/');
    for (const key of keys) await b.node.put(key, Buffer.from('garbage'));
    await settled(a, b);
    // Each node replaces the garbage under its own key, so that the tokens are accepted again.
    await expect.poll(() => b.authority.verify(token)).toMatchObject({ kind: 'accepted' });
    expect(shared.keys('token-key/')).toEqual(keys);
  });
});
