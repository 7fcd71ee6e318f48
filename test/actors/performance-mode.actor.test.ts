import { filter, firstValueFrom, map } from 'rxjs';
import { afterEach, describe, expect, test } from 'vitest';
import type { PerformanceMode } from '#bus/bus-messages.js';
import { NO_EVENTS } from '#contracts/datapath/datapath.js';
import { assembleStore, type Store } from '#store/store.js';
import { ALL_EVENTS } from '#test/dataplane/all-events.js';
import { FakeSharedStore } from '#test/store/fake-shared-store.js';
import { memorySeal, NO_COPY } from '#test/store/memory-store.js';
import { startSystem, stopSystems } from './running-system.js';

const BUILT_IN = { enabled: true, source: null, revision: 0 };

afterEach(stopSystems);

type TestNode = Awaited<ReturnType<typeof nodeOf>>;
/** Returns the performance mode of a node, and the events that its datapath reports. */
const inForce = async ({ mode, datapath }: Pick<TestNode, 'mode' | 'datapath'>) => [
  await mode.read(),
  datapath.eventsWanted,
];

async function nodeOf(shared: FakeSharedStore) {
  const node = await shared.nodeOf();
  const store: Store = await assembleStore(node.kv, NO_COPY, memorySeal(), () => {}, {
    store: node,
    commits: node.commits,
    kv: node.kv,
    seals: true,
  });
  const running = await startSystem({ store });
  const { system } = running;
  await system.performanceMode.read();
  const published: PerformanceMode[] = [];
  system.bus.messages.subscribe((message) => {
    if (message.type === 'performance_mode.changed') published.push(message.mode);
  });
  /** Resolves when the node has published a performance mode with this revision. */
  const reached = (revision: number) =>
    firstValueFrom(
      system.bus.messages.pipe(
        map((message) => (message.type === 'performance_mode.changed' ? message.mode.revision : null)),
        filter((seen) => seen === revision),
      ),
    );
  return { ...running, node, published, reached, mode: system.performanceMode };
}

describe('performance mode in a cluster', () => {
  test('performance mode is in force at all nodes after a write at one node, and stays in force while a node is disconnected', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const b = await nodeOf(shared);
    const reached = b.reached(1);
    const written = { enabled: false, source: 'cluster', revision: 1 } as const;
    expect(await a.mode.write({ enabled: false, author: 'alice' })).toEqual(written);
    await reached;
    expect(await inForce(b)).toEqual([written, NO_EVENTS]);
    expect([a.published, b.published]).toEqual([[written], [written]]);

    b.node.disconnect();
    expect(await b.mode.read()).toEqual(written);
    await b.system.shutdown();
    const again = await startSystem({ store: b.store });
    expect(await again.system.performanceMode.read()).toEqual(written);
    expect(again.datapath.eventsWanted).toEqual(NO_EVENTS);
  });

  test('performance mode is not changed by a write on a disconnected node, and the write is refused with store_unavailable', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    a.node.disconnect();
    expect(await a.mode.write({ enabled: false, author: 'alice' })).toMatchObject({
      kind: 'refused',
      code: 'store_unavailable',
    });
    expect([await a.mode.read(), a.datapath.eventsWanted, shared.keys()]).toEqual([BUILT_IN, ALL_EVENTS, []]);
  });

  test('a node that was disconnected takes the performance mode that was written in the cluster meanwhile', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const b = await nodeOf(shared);
    b.node.disconnect();
    await a.mode.write({ enabled: false, author: 'alice' });
    await a.mode.write({ enabled: true, author: 'alice' });
    await a.mode.write({ enabled: false, author: 'alice' });
    const reached = b.reached(3);
    await b.node.connect();
    await reached;
    expect(await inForce(b)).toEqual([{ enabled: false, source: 'cluster', revision: 3 }, NO_EVENTS]);
  });

  test('a node takes an older value of performance mode, or the default, from the cluster after an old backup of etcd was restored', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const empty = shared.backup();
    await a.mode.write({ enabled: false, author: 'alice' });
    const older = shared.backup();
    await a.mode.write({ enabled: true, author: 'alice' });
    let reached = a.reached(1);
    await shared.restore(older);
    await reached;
    expect(await inForce(a)).toEqual([{ enabled: false, source: 'cluster', revision: 1 }, NO_EVENTS]);
    reached = a.reached(0);
    await shared.restore(empty);
    await reached;
    expect(await inForce(a)).toEqual([BUILT_IN, ALL_EVENTS]);
  });

  test('a cluster accepts only one of two concurrent writes of performance mode at different nodes that expect the same revision', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const b = await nodeOf(shared);
    b.node.hold();
    const expectedRevision = 0;
    expect(await a.mode.write({ enabled: false, author: 'alice', expectedRevision })).toMatchObject({ revision: 1 });
    expect(await b.mode.write({ enabled: true, author: 'bob', expectedRevision })).toMatchObject({
      kind: 'refused',
      code: 'precondition_failed',
    });
    expect(shared.json('setting/performance_mode')).toMatchObject({ enabled: false, updated_by: 'alice' });
  });

  test('a cluster accepts both of two concurrent writes of performance mode that expect no revision, one after the other', async () => {
    const shared = new FakeSharedStore();
    const a = await nodeOf(shared);
    const b = await nodeOf(shared);
    b.node.hold();
    await a.mode.write({ enabled: false, author: 'alice' });
    const second = b.mode.write({ enabled: true, author: 'bob' });
    await new Promise(setImmediate);
    await b.node.release();
    const reached = a.reached(2);
    const written = { enabled: true, source: 'cluster', revision: 2 } as const;
    expect(await second).toEqual(written);
    await reached;
    expect([await a.mode.read(), await b.mode.read(), b.datapath.eventsWanted]).toEqual([written, written, ALL_EVENTS]);
  });
});
