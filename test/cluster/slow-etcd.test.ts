import { setTimeout as pause } from 'node:timers/promises';
import { create, type DescMessage, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { Server, ServerCredentials, type sendUnaryData } from '@grpc/grpc-js';
import { afterEach, expect, test } from 'vitest';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { under } from '#cluster/etcd/etcd-types.js';
import { RangeResponseSchema, TxnResponseSchema } from '#cluster/etcd/generated/etcd_pb.js';
import { ClusterKeys } from '#cluster/keys.js';
import { Replica } from '#cluster/replica/replica.js';
import { ReplicaStore } from '#cluster/replica/replica-store.js';
import { UnreadableValues } from '#cluster/unreadable-values.js';
import { StoreError } from '#store/store-error.js';
import { createMemoryStore } from '#test/store/memory-store.js';

type Times = { readonly readMs: number; readonly writeMs: number };

const ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
});

/**
 * Starts a fake of an etcd member with a slow disk, which responds to each request late. A real etcd behaves
 * so only while other programs delay its disk.
 */
async function slowMember({ readMs, writeMs }: Times) {
  const received = { reads: 0, writes: 0 };
  const header = { revision: 7n };
  const method = <Schema extends DescMessage>(
    name: string,
    schema: Schema,
    respond: () => Promise<MessageInitShape<Schema>>,
  ) => ({
    definition: {
      path: `/etcdserverpb.KV/${name}`,
      requestStream: false,
      responseStream: false,
      requestSerialize: (bytes: Buffer) => bytes,
      requestDeserialize: (bytes: Buffer) => bytes,
      responseSerialize: (bytes: Buffer) => bytes,
      responseDeserialize: (bytes: Buffer) => bytes,
    },
    handle: (_: unknown, done: sendUnaryData<Buffer>) => {
      void respond().then((response) => done(null, Buffer.from(toBinary(schema, create(schema, response)))));
    },
  });
  const range = method('Range', RangeResponseSchema, async () => {
    received.reads += 1;
    await pause(readMs);
    return { header };
  });
  const txn = method('Txn', TxnResponseSchema, async () => {
    received.writes += 1;
    await pause(writeMs);
    return { header, succeeded: true };
  });
  const server = new Server();
  server.addService({ range: range.definition, txn: txn.definition }, { range: range.handle, txn: txn.handle });
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (failure, bound) =>
      failure === null ? resolve(bound) : reject(failure),
    ),
  );
  ends.push(() => server.forceShutdown());
  return { endpoint: `http://127.0.0.1:${port}`, received };
}

async function clientOf(...times: readonly Times[]) {
  const members = await Promise.all(times.map(slowMember));
  const client = new EtcdClient({ endpoints: members.map(({ endpoint }) => endpoint), tls: null, user: null });
  ends.push(() => client.close());
  return { client, members };
}

const SLOW = { readMs: 1_100, writeMs: 2_000 };

test('a read from etcd succeeds while the disk of the leader is slow; with three members, each member is asked once', async () => {
  const readsOf = async (...times: readonly Times[]) => {
    const { client, members } = await clientOf(...times);
    expect((await client.range(under('/weir/'), { withinMs: 5_000 })).revision).toBe(7n);
    return members.map(({ received }) => received.reads);
  };
  expect(await Promise.all([readsOf(SLOW), readsOf(SLOW, SLOW, SLOW)])).toEqual([[3], [1, 1, 1]]);
});

test('a read is sent to the next etcd member if the current member is late, but later requests still use the current member', async () => {
  const { client, members } = await clientOf(SLOW, { readMs: 0, writeMs: 0 });
  await client.range(under('/weir/'));
  expect(members.map(({ received }) => received.reads)).toEqual([1, 1]);
  expect(client.member).toBe(members[0]?.endpoint);
});

test('a late read from an etcd member does not cancel a write to the same member', async () => {
  const { client, members } = await clientOf(SLOW);
  const writing = client.transact({ when: [], apply: [{ type: 'delete', key: '/weir/a' }] }, { withinMs: 5_000 });
  const [{ succeeded }] = await Promise.all([writing, client.range(under('/weir/'), { withinMs: 5_000 })]);
  expect(succeeded).toBe(true);
  expect(members[0]?.received.writes).toBe(1);
});

test('a cluster write has an unknown outcome if its node does not receive the written value in its local copy of the cluster keys in time', async () => {
  const { client } = await clientOf(SLOW);
  const keys = new ClusterKeys('/weir', []);
  const replica = new Replica(client, new ReplicaStore(createMemoryStore()), keys, new UnreadableValues(keys));
  await expect(replica.until(8n, 10)).rejects.toEqual(
    new StoreError('outcome_unknown', 'the write is in etcd as revision 8, but this node could not apply it yet'),
  );
});

test('a read from etcd fails with `timed_out` if no member responds in time', async () => {
  const { client } = await clientOf(SLOW, SLOW);
  await expect(client.range(under('/weir/'), { withinMs: 1_000 })).rejects.toMatchObject({ code: 'timed_out' });
});
