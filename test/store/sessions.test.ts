import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodeJwt } from 'jose';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createAuthority } from '#store/tokens/authority.js';
import { SharedTokens } from '#store/tokens/shared-tokens.js';
import { createTokenStore } from '#store/tokens/token-store.js';
import type { TokenId } from '#store/tokens/token-verdict.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { FakeSharedStore } from './fake-shared-store.js';
import { temporaryFolder } from './temporary-folder.js';

const HOUR_MS = 3_600_000;

/** Returns a node with its clock, and functions that issue a token and start a session. */
async function nodeWithSessions() {
  const dataDir = temporaryFolder();
  const kv = createMemoryStore();
  const clock = { at: new Date('2026-01-01T00:00:00.500Z') };
  const open = async (node = 'node-a') => {
    const opened = await createAuthority(createTokenStore(kv), dataDir, { now: () => clock.at, node });
    onTestFinished(() => opened.close());
    return opened;
  };
  const authority = await open();
  const issue = async (expiresInMs: number | null = null) => {
    const { token } = await authority.issue({ subject: 'ci', role: 'readonly', expiresInMs });
    const verdict = await authority.verify(token);
    if (verdict.kind === 'refused') throw new Error(verdict.reason);
    return { token, identity: verdict.identity };
  };
  const start = async (token: TokenId) => {
    const started = await authority.sessions.start(token);
    if (started === null) throw new Error('the token is not valid');
    return started;
  };
  return { dataDir, clock, open, authority, issue, start, sessions: authority.sessions };
}

const refused = (reason: string) => ({ kind: 'refused', reason });

describe('the sessions of a node', () => {
  it('a session has the identity of its token, and ends after 12 hours', async () => {
    const { sessions, clock, issue, start } = await nodeWithSessions();
    const { identity } = await issue();
    const { jwt, session } = await start(identity);
    expect(session).toEqual({
      id: expect.any(String),
      node: 'node-a',
      expiresAt: new Date('2026-01-01T12:00:00.000Z'),
    });
    expect(await sessions.verify(jwt)).toEqual({ kind: 'accepted', identity, session });
    clock.at = new Date(session.expiresAt.getTime() - 1);
    expect(await sessions.verify(jwt)).toMatchObject({ kind: 'accepted' });
    clock.at = session.expiresAt;
    expect(await sessions.verify(jwt)).toEqual(refused('expired'));
  });

  it('a session ends with its token: it expires no later, and a revocation of the token ends it', async () => {
    const { authority, sessions, clock, issue, start } = await nodeWithSessions();
    const short = await issue(HOUR_MS);
    const { session } = await start(short.identity);
    expect(session.expiresAt).toEqual(new Date('2026-01-01T01:00:00.000Z'));
    const long = await issue();
    const { jwt } = await start(long.identity);
    await authority.revoke(long.identity.id);
    expect(await sessions.verify(jwt)).toEqual(refused('parent'));
    expect(await sessions.start(long.identity)).toBeNull();
    clock.at = new Date(clock.at.getTime() + HOUR_MS);
    expect(await sessions.start(short.identity)).toBeNull();
  });

  it('a session cookie is not accepted as a token, a token is not accepted as a session cookie, and a modified session is refused', async () => {
    const { authority, sessions, issue, start } = await nodeWithSessions();
    const { token, identity } = await issue();
    const { jwt } = await start(identity);
    expect(decodeJwt(jwt)).toMatchObject({ aud: 'weir-console', parent: identity.id, node: 'node-a' });
    expect(await authority.verify(jwt)).toEqual(refused('malformed'));
    expect(await sessions.verify(token)).toEqual(refused('invalid'));
    const [header, , signature] = jwt.split('.');
    const [, payload] = token.split('.');
    for (const value of ['', 'garbage', `${header}.${payload}.${signature}`])
      expect(await sessions.verify(value)).toEqual(refused('invalid'));
  });

  it('a session survives a restart of its node; a node of another name or with another key refuses it', async () => {
    const { open, issue, start } = await nodeWithSessions();
    const { jwt } = await start((await issue()).identity);
    expect(await (await open()).sessions.verify(jwt)).toMatchObject({ kind: 'accepted' });
    expect(await (await open('node-b')).sessions.verify(jwt)).toEqual(refused('invalid'));
    const other = await nodeWithSessions();
    expect(await other.sessions.verify(jwt)).toEqual(refused('invalid'));
  });

  it('a session that was ended is refused, also after a restart; other sessions of its token stay valid', async () => {
    const { sessions, open, issue, start } = await nodeWithSessions();
    const { identity } = await issue();
    const [ended, other] = [await start(identity), await start(identity)];
    await sessions.end(ended.session);
    for (const now of [sessions, (await open()).sessions]) {
      expect(await now.verify(ended.jwt)).toEqual(refused('ended'));
      expect(await now.verify(other.jwt)).toMatchObject({ kind: 'accepted' });
    }
  });

  it('the node forgets an ended session when it would have expired', async () => {
    const { dataDir, sessions, clock, issue, start } = await nodeWithSessions();
    const { identity } = await issue();
    const ended = async () => readFileSync(join(dataDir, 'session.ends'), 'utf8').split('\n').slice(0, -1);
    const [first, second] = [await start(identity), await start(identity)];
    await Promise.all([sessions.end(first.session), sessions.end(second.session)]);
    expect(await ended()).toHaveLength(2);
    clock.at = first.session.expiresAt;
    const third = await start(identity);
    await sessions.end(third.session);
    expect(await ended()).toEqual([`${third.session.id} ${third.session.expiresAt.getTime() / 1000}`]);
  });

  it('a session is ended even if the disk fails to store its end', async () => {
    const { dataDir, sessions, issue, start } = await nodeWithSessions();
    const { jwt, session } = await start((await issue()).identity);
    mkdirSync(join(dataDir, 'session.ends.new'));
    await expect(sessions.end(session)).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(await sessions.verify(jwt)).toEqual(refused('ended'));
  });

  it('a session of a token that another node of the cluster issued ends when that node is removed', async () => {
    const shared = new FakeSharedStore();
    const memberNamed = async (id: string) => {
      const store = await shared.nodeOf();
      const dataDir = temporaryFolder();
      const authority = await createAuthority(createTokenStore(createMemoryStore()), dataDir, {
        node: id,
        shared: await SharedTokens.load(store),
      });
      onTestFinished(() => authority.close());
      return { store, dataDir, authority };
    };
    const [a, b] = [await memberNamed('a'), await memberNamed('b')];
    const token = readFileSync(join(a.dataDir, 'admin.token'), 'utf8').trim();
    await expect.poll(() => b.authority.verify(token)).toMatchObject({ kind: 'accepted' });
    const verdict = await b.authority.verify(token);
    if (verdict.kind === 'refused') throw new Error(verdict.reason);
    const started = await b.authority.sessions.start(verdict.identity);
    expect(await b.authority.sessions.verify(started?.jwt ?? '')).toMatchObject({ kind: 'accepted' });
    const removed = { id: 'a', by: 'b', at: '2026-01-01T00:00:00.000Z', tokenKeys: [verdict.identity.keyId] };
    await b.store.put('removed-node/a', Buffer.from(JSON.stringify(removed)));
    await expect.poll(() => b.authority.verify(token)).toEqual(refused('bad_signature'));
    expect(await b.authority.sessions.verify(started?.jwt ?? '')).toEqual(refused('parent'));
  });
});

describe('the one-time codes of a node', () => {
  it('a one-time code can be redeemed once, within 60 seconds, for a session of the token that requested it', async () => {
    const { sessions, clock, issue } = await nodeWithSessions();
    const { identity } = await issue();
    const { code, expiresAt } = sessions.codes.issue(identity);
    expect(code).toMatch(/^[\w-]{43}$/);
    expect(expiresAt).toEqual(new Date(clock.at.getTime() + 60_000));
    expect(sessions.codes.redeem('x')).toBeNull();
    expect(sessions.codes.redeem(code)).toEqual(identity);
    expect(sessions.codes.redeem(code)).toBeNull();
    const late = sessions.codes.issue(identity);
    clock.at = late.expiresAt;
    expect(sessions.codes.redeem(late.code)).toBeNull();
  });

  it('an eleventh one-time code of the same token invalidates its first code, and no code of another token', async () => {
    const { sessions, issue } = await nodeWithSessions();
    const [one, other] = [(await issue()).identity, (await issue()).identity];
    const kept = sessions.codes.issue(other).code;
    const codes = Array.from({ length: 11 }, () => sessions.codes.issue(one).code);
    const redeemed = codes.map((code) => sessions.codes.redeem(code) !== null);
    expect(redeemed).toEqual([false, ...Array.from({ length: 10 }, () => true)]);
    expect(sessions.codes.redeem(kept)).toEqual(other);
  });
});
