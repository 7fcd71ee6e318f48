import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { firstValueFrom, lastValueFrom, retry, tap } from 'rxjs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { EtcdError } from '#cluster/etcd/etcd-error.js';
import { serversOf } from '#cluster/etcd/etcd-server.js';
import { type EtcdOptions, type KeyChange, type Operation, under, type WatchBatch } from '#cluster/etcd/etcd-types.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { ProgressClock } from '#test/progress-clock.js';
import { EtcdCluster } from './etcd-cluster.js';

const SOON = { withinMs: 5_000 };
const text = (value: Uint8Array | undefined): string => new TextDecoder().decode(value);
const bytes = (value: string): Uint8Array => new TextEncoder().encode(value);
const put = (key: string, value: string, lease = 0n): Operation => ({ type: 'put', key, value: bytes(value), lease });

let cluster: EtcdCluster;
let leave: () => void;
let client: EtcdClient;
const clients: EtcdClient[] = [];
beforeAll(async () => {
  cluster = await EtcdCluster.start('etcd');
  leave = enterNamespace(cluster.namespace);
});
beforeEach(() => {
  client = clientOf({});
});
afterEach(() => {
  for (const each of clients.splice(0)) each.close();
});
afterAll(async () => {
  leave?.();
  await cluster?.remove();
});

function clientOf(options: Partial<EtcdOptions>): EtcdClient {
  const made = new EtcdClient({ ...cluster.options, ...options });
  clients.push(made);
  return made;
}

/** Returns a client that tries the member with this name first. */
function clientAt(name = ''): EtcdClient {
  const first = cluster.endpointOf(name);
  return clientOf({ endpoints: [first, ...cluster.endpoints.filter((each) => each !== first)] });
}

const write = (...apply: Operation[]) => client.transact({ when: [], apply }, SOON);

async function codeOf(request: Promise<unknown>): Promise<string> {
  const failure: unknown = await request.then(
    () => undefined,
    (error: unknown) => error,
  );
  return failure instanceof EtcdError ? failure.code : `no EtcdError: ${String(failure)}`;
}

/** Returns the name of the member that the client uses. */
async function memberInUse(): Promise<string> {
  await client.range(under('/weir/none/'));
  return cluster.members[cluster.endpoints.indexOf(client.member ?? '')]?.name ?? '';
}

describe('reads and writes', () => {
  test('the etcd client reads a range of more than one page at one revision, in the order of the keys', async () => {
    const keys = Array.from({ length: 1_200 }, (_, index) => `/weir/page/${String(index).padStart(5, '0')}`);
    for (let from = 0; from < keys.length; from += 100)
      await write(...keys.slice(from, from + 100).map((key) => put(key, key)));
    const { revision } = await write(put('/weir/page-other', 'x'));
    const range = await client.range(under('/weir/page/'));
    expect(range.entries.map(({ key }) => key)).toEqual(keys);
    expect(range.entries.every(({ key, value }) => text(value) === key)).toBe(true);
    expect(range.revision).toBe(revision);
  });

  test('an etcd transaction does the operations in `apply` if all conditions in `when` hold, and those in `otherwise` if one does not hold', async () => {
    const first = await client.transact(
      {
        when: [{ key: '/weir/txn', modRevision: 0n }],
        apply: [put('/weir/txn', 'one'), { type: 'get', key: '/weir/txn' }],
      },
      SOON,
    );
    expect(first.succeeded).toBe(true);
    const [entry] = first.found[0] ?? [];
    expect([text(entry?.value), entry?.modRevision]).toEqual(['one', first.revision]);
    const second = await client.transact(
      {
        when: [
          { key: '/weir/txn', modRevision: first.revision },
          { key: '/weir/txn', createRevision: 0n },
        ],
        apply: [put('/weir/txn', 'two')],
        otherwise: [{ type: 'get_range', range: under('/weir/tx') }],
      },
      SOON,
    );
    expect(second.succeeded).toBe(false);
    expect(second.found[0]?.map(({ key, value }) => [key, text(value)])).toEqual([['/weir/txn', 'one']]);
    await write({ type: 'delete', key: '/weir/txn' });
    expect((await client.range(under('/weir/txn'))).entries).toEqual([]);
  });

  test('the condition `empty` of an etcd transaction holds while a key range has no key', async () => {
    const range = under('/weir/empty/');
    const take = (key: string) => client.transact({ when: [{ empty: range }], apply: [put(key, 'x')] }, SOON);
    expect((await take('/weir/empty/b')).succeeded).toBe(true);
    expect((await take('/weir/empty/a')).succeeded).toBe(false);
    await write({ type: 'delete_range', range });
    expect((await take('/weir/empty/a')).succeeded).toBe(true);
  });

  test('an etcd transaction that etcd refuses fails with the reason, and changes nothing', async () => {
    const twice = write(put('/weir/twice', 'a'), put('/weir/twice', 'b'));
    await expect(twice).rejects.toMatchObject({ code: 'rejected', message: expect.stringContaining('duplicate key') });
    expect(await codeOf(write(put('/weir/large', 'x'.repeat(2_000_000))))).toBe('rejected');
    expect((await client.range(under('/weir/twice'))).entries).toEqual([]);
  });

  test('etcd denies access to keys outside of the permission of the user', async () => {
    expect(await codeOf(write(put('/other/key', 'x')))).toBe('denied');
    expect(await codeOf(client.range(under('/other/')))).toBe('denied');
    expect(await codeOf(lastValueFrom(client.watch(under('/other/'), 1n)))).toBe('denied');
  });
});

describe('authentication with a name and a password', () => {
  test('etcd denies a wrong password, and the etcd client logs in again after the members restart', async () => {
    cluster.etcdctl('user', 'add', 'named:secret');
    cluster.etcdctl('user', 'grant-role', 'named', 'weir');
    // A certificate without a common name: etcd takes the user from the token.
    const tls = cluster.anonymousTls;
    expect(await codeOf(clientOf({ tls, user: { name: 'named', password: 'wrong' } }).range(under('/weir/')))).toBe(
      'denied',
    );
    expect(await codeOf(clientOf({ tls, user: null }).range(under('/weir/')))).toBe('denied');
    client = clientOf({ tls, user: { name: 'named', password: 'secret' } });
    await write(put('/weir/named', '1'));
    for (const { name } of cluster.members) await cluster.signal(name, 'SIGKILL');
    for (const { name } of cluster.members) cluster.startMember(name);
    await cluster.healthy();
    await write(put('/weir/named', '2'));
    expect(text((await client.range(under('/weir/named'))).entries[0]?.value)).toBe('2');
  });
});

describe('watches', () => {
  /** Watches a range, and collects its changes and the code of its end. */
  function watching(prefix: string, from: bigint) {
    const seen: { changes: KeyChange[]; batches: WatchBatch[]; ended: string | null } = {
      changes: [],
      batches: [],
      ended: null,
    };
    const subscription = client.watch(under(prefix), from).subscribe({
      next: (batch) => {
        seen.batches.push(batch);
        seen.changes.push(...batch.changes);
      },
      error: (failure: unknown) => {
        seen.ended = failure instanceof EtcdError ? failure.code : String(failure);
      },
    });
    return { seen, stop: () => subscription.unsubscribe() };
  }

  test('an etcd watch that ends before its stream is open does not end the process', async () => {
    const raised: unknown[] = [];
    const onRaised = (failure: unknown) => raised.push(failure);
    process.on('uncaughtExceptionMonitor', onRaised);
    for (let round = 0; round < 10; round++) watching('/weir/w/', 1n).stop();
    const lease = await client.lease(1, SOON);
    await lease.revoke(SOON);
    await write(put('/weir/w/end', '1'));
    await pause(500);
    process.off('uncaughtExceptionMonitor', onRaised);
    expect(raised).toEqual([]);
  });

  test('an etcd watch that ends before its stream is open leaves no connection open after `close`', async () => {
    const sockets = () => process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
    const before = sockets();
    // The streams have a connection of their own, which the first watch opens.
    await firstValueFrom(client.watch(under('/weir/watch/'), 0n));
    for (let again = 0; again < 3; again++) {
      client.watch(under('/weir/watch/'), 0n).subscribe().unsubscribe();
      await pause(50);
    }
    client.close();
    await expect.poll(sockets, { timeout: 2_000 }).toBe(before);
  });

  test('an etcd member that accepts a connection and never responds leaves no connection open after `close`', async () => {
    const accepted: Socket[] = [];
    const silent = createServer((socket) => void accepted.push(socket)).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo;
    const [member] = serversOf({ ...cluster.options, endpoints: [`https://localhost:${port}`] });
    await expect(member?.connected(Date.now() + 300)).rejects.toThrow();
    expect(accepted).toHaveLength(1);
    const ended = once(accepted[0] as Socket, 'close', { signal: AbortSignal.timeout(5_000) });
    accepted[0]?.resume();
    member?.close();
    await ended;
    silent.close();
  });

  test('an etcd watch emits each change from its start revision on, in the order of the revisions', async () => {
    const { revision } = await write(put('/weir/w/a', '1'), put('/weir/w/b', '1'));
    const { seen, stop } = watching('/weir/w/', revision);
    await write(put('/weir/w/a', '2'));
    await write(put('/weir/elsewhere', 'x'));
    const last = await write({ type: 'delete', key: '/weir/w/b' });
    await expect.poll(() => seen.changes.length).toBe(4);
    const told = seen.changes.map((change) =>
      change.type === 'put'
        ? [change.entry.key, text(change.entry.value), change.entry.modRevision]
        : [change.key, change.modRevision],
    );
    expect(told).toEqual([
      ['/weir/w/a', '1', revision],
      ['/weir/w/b', '1', revision],
      ['/weir/w/a', '2', revision + 1n],
      ['/weir/w/b', last.revision],
    ]);
    stop();
  });

  test('an etcd watch emits one transaction with many large values as one batch', async () => {
    const { revision } = await write(put('/weir/big/0', ''));
    const { seen, stop } = watching('/weir/big/', revision + 1n);
    for (let round = 0; round < 4; round++)
      await write(...Array.from({ length: 10 }, (_, index) => put(`/weir/big/${index}`, 'x'.repeat(120_000))));
    await expect.poll(() => seen.changes.length).toBe(40);
    for (const { changes } of seen.batches) expect(changes.length % 10).toBe(0);
    stop();
  });

  test('an etcd watch from a compacted revision ends with `compacted`', async () => {
    const { revision } = await write(put('/weir/c', '1'));
    const later = await write(put('/weir/c', '2'));
    cluster.etcdctl('compact', String(later.revision));
    const { seen } = watching('/weir/c', revision);
    await expect.poll(() => seen.ended).toBe('compacted');
    expect((await client.range(under('/weir/c'))).entries.map(({ value }) => text(value))).toEqual(['2']);
  });

  test('an etcd watch without changes stays open while its member responds', async () => {
    const { revision } = await write(put('/weir/quiet', '1'));
    const { seen, stop } = watching('/weir/quiet', revision + 1n);
    await pause(3_000);
    expect(seen.ended).toBeNull();
    await write(put('/weir/quiet', '2'));
    await expect.poll(() => seen.changes.length).toBe(1);
    stop();
  });

  test('an etcd watch ends if its member loses the leader', async () => {
    const member = await memberInUse();
    const { revision } = await write(put('/weir/lonely', '1'));
    const { seen } = watching('/weir/lonely', revision + 1n);
    cluster.isolate(member);
    await expect.poll(() => seen.ended).toBe('unavailable');
    expect(await memberInUse()).not.toBe(member);
    cluster.mend();
    await cluster.healthy();
  });
});

describe('leases', () => {
  test('an etcd lease keeps its keys beyond its time to live, and `revoke` deletes the keys', async () => {
    const lease = await client.lease(2, SOON);
    expect(lease.id).toBeGreaterThan(2n ** 53n);
    await write(put('/weir/leased', 'x', lease.id));
    await pause(4_500);
    const [entry] = (await client.range(under('/weir/leased'))).entries;
    expect(entry?.lease).toBe(lease.id);
    expect(lease.isValid).toBe(true);
    await lease.revoke(SOON);
    expect((await client.range(under('/weir/leased'))).entries).toEqual([]);
    expect(await codeOf(write(put('/weir/leased', 'x', lease.id)))).toBe('lease_expired');
  });

  test('an etcd lease that another client revoked ends for its holder with a reason', async () => {
    const lease = await client.lease(2, SOON);
    const reason = new Promise((resolve) => lease.ended.subscribe(resolve));
    cluster.etcdctl('lease', 'revoke', lease.id.toString(16));
    expect(await reason).toBe('etcd does not know it any more');
    expect(lease.isValid).toBe(false);
  });

  test('the etcd client treats a lease as ended before etcd ends the lease, if etcd cannot be reached', async () => {
    const lease = await client.lease(2, SOON);
    await write(put('/weir/cut', 'x', lease.id));
    for (const { name } of cluster.members) cluster.cut(name);
    const clock = new ProgressClock();
    const reason = await new Promise((resolve) => lease.ended.subscribe(resolve));
    expect(clock.ms()).toBeLessThan(2_200);
    expect(reason).toBe('etcd did not renew it in time');
    cluster.mend();
  });
});

describe('faults of members', () => {
  afterEach(async () => {
    cluster.mend();
    for (const { name } of cluster.members) {
      await cluster.signal(name, 'SIGCONT');
      if (!cluster.runs(name)) cluster.startMember(name);
    }
    await cluster.healthy();
  });

  /**
   * Writes a counter every 10 ms while `fault` happens. After a lost response, reads whether etcd applied the
   * write. Returns the longest time between two successful writes, and the end of a watch after the fault,
   * both in milliseconds and without waits for a processor, and the reason of this end.
   */
  async function during(fault: () => void | Promise<void>) {
    const key = '/weir/counter';
    const { revision } = await write(put(key, '0'));
    let mod = revision;
    let watchEnd: { readonly at: number; readonly reason: string } | undefined;
    const watch = client
      .watch(under(key), revision + 1n)
      .pipe(
        tap({ error: (failure: Error) => (watchEnd ??= { at: performance.now(), reason: failure.message }) }),
        retry({ delay: 20 }),
      );
    const subscription = watch.subscribe();
    const clock = new ProgressClock();
    let last = performance.now();
    let longest = 0;
    let at = 0;
    const until = performance.now() + 4_500;
    for (let value = 1; performance.now() < until; ) {
      if (at === 0 && performance.now() > until - 4_000) {
        await fault();
        at = performance.now();
      }
      try {
        const { succeeded, revision: now } = await client.transact(
          { when: [{ key, modRevision: mod }], apply: [put(key, String(value))] },
          { withinMs: 3_000 },
        );
        expect(succeeded, `write ${value}`).toBe(true);
        mod = now;
      } catch (failure) {
        if (!(failure instanceof EtcdError)) throw failure;
        expect(['outcome_unknown', 'unavailable']).toContain(failure.code);
        const [entry] = (await client.range(under(key), { withinMs: 5_000 })).entries;
        expect([String(value - 1), String(value)]).toContain(text(entry?.value));
        const isApplied = text(entry?.value) === String(value);
        if (failure.code === 'unavailable') expect(isApplied).toBe(false);
        if (!isApplied) continue;
        mod = entry?.modRevision ?? 0n;
      }
      value += 1;
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
      await pause(10);
    }
    subscription.unsubscribe();
    const waited = clock.waitedMs();
    const watchLost = (watchEnd?.at ?? Number.NaN) - at - waited;
    return { longest: longest - waited, watchLost, watchReason: watchEnd?.reason };
  }

  test('a killed etcd follower delays writes by at most 0.5 s', async () => {
    const member = cluster.followers()[0] ?? '';
    client = clientAt(member);
    const { longest, watchLost } = await during(() => cluster.signal(member, 'SIGKILL'));
    expect(longest).toBeLessThan(500);
    expect(watchLost).toBeLessThan(500);
  });

  test.each(['frozen', 'cut off'])(
    'an etcd member that does not respond (%s) delays writes by at most 1.5 s, and a watch by at most 3 s',
    async (fault) => {
      const member = cluster.followers()[0] ?? '';
      client = clientOf({
        endpoints: [
          cluster.endpointOf(member),
          ...cluster.endpoints.filter((each) => each !== cluster.endpointOf(member)),
        ],
      });
      const { longest, watchLost, watchReason } = await during(() =>
        fault === 'frozen' ? cluster.signal(member, 'SIGSTOP') : cluster.cut(member),
      );
      expect(longest).toBeLessThan(1_500);
      expect(watchLost).toBeLessThan(3_000);
      expect(watchReason).toMatch(/did not respond for 800 ms/);
    },
  );

  // etcd needs one to two seconds for an election, and longer if no member gets the majority at first.
  test.each(['the leader', 'a follower'])(
    'the death of the etcd leader delays writes of a client that is connected to %s by at most 1 s after the election of another leader',
    async (used) => {
      const leader = cluster.leader();
      client = clientAt(used === 'the leader' ? leader : cluster.followers()[0]);
      let killedAt = 0;
      const { longest } = await during(async () => {
        killedAt = performance.now();
        await cluster.signal(leader, 'SIGKILL');
      });
      const election = cluster.electedAt - killedAt;
      console.log(`election ${Math.round(election)} ms, writes delayed by ${Math.round(longest)} ms`);
      expect(election).toBeGreaterThan(0);
      expect(longest).toBeLessThan(election + 1_000);
    },
  );

  test('a write to etcd whose response is lost has an unknown outcome, and is not sent again', async () => {
    const member = await memberInUse();
    const { revision } = await write(put('/weir/lost', '0'));
    cluster.cutResponses(member);
    expect(await codeOf(client.transact({ when: [], apply: [put('/weir/lost', '1')] }, { withinMs: 1_000 }))).toBe(
      'outcome_unknown',
    );
    cluster.mend();
    const [entry] = (await client.range(under('/weir/lost'))).entries;
    expect([text(entry?.value), entry?.modRevision]).toEqual(['1', revision + 1n]);
    await pause(1_500);
    expect((await client.range(under('/weir/lost'))).entries[0]?.modRevision).toBe(revision + 1n);
  });

  test('a new etcd client reads from the third member if the first two members cannot be reached', async () => {
    const [first, second, third] = cluster.members.map(({ name }) => name);
    for (const name of [first, second]) cluster.cut(name ?? '');
    client = clientOf({});
    await client.range(under('/weir/none/'), { withinMs: 2_000 });
    expect(client.member).toBe(cluster.endpointOf(third ?? ''));
  });

  test('a request to etcd fails with `unavailable` and the reason of each member if no member can be reached', async () => {
    for (const { name } of cluster.members) await cluster.signal(name, 'SIGKILL');
    await expect(client.range(under('/weir/'), { withinMs: 1_500 })).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringMatching(/no member of etcd can be reached: .*10\.79\.0\.1.*ECONNREFUSED/),
    });
  });

  test('the etcd client does not trust a member with a certificate of another CA', async () => {
    const tls = { ...(cluster.options.tls ?? cluster.anonymousTls), ca: cluster.otherCa() };
    await expect(clientOf({ tls }).range(under('/weir/'), { withinMs: 1_500 })).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringMatching(/certificate/),
    });
  });
});

test('etcd with a full database refuses writes with `no_space`, and still deletes keys', async () => {
  const small = await EtcdCluster.start('full', 1, ['--quota-backend-bytes', String(2 * 1024 * 1024)]);
  const back = enterNamespace(small.namespace);
  const full = new EtcdClient(small.options);
  try {
    let refused = '';
    // etcd compares the size of its database with the quota, and the size grows only every 100 ms.
    for (let index = 0; index < 200 && refused === ''; index++) {
      await pause(20);
      refused = await full.transact({ when: [], apply: [put(`/weir/${index}`, 'x'.repeat(100_000))] }, SOON).then(
        () => '',
        (failure: unknown) => (failure instanceof EtcdError ? failure.code : String(failure)),
      );
    }
    expect(refused).toBe('no_space');
    expect(await codeOf(full.lease(5, SOON))).toBe('no_space');
    expect(
      (await full.transact({ when: [], apply: [{ type: 'delete_range', range: under('/weir/') }] }, SOON)).succeeded,
    ).toBe(true);
  } finally {
    full.close();
    back();
    await small.remove();
  }
});
