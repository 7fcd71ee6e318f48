import { RocksDb } from '#rocksdb/rocksdb.js';
import { WorkerServer } from '#threads/worker-server.js';

export type DatabaseAsks = {
  /**
   * Opens the database in `folder`, and then writes and reads until the thread ends. The promise resolves
   * after the first write.
   */
  begin(folder: string): Promise<void>;
  /** Begins to open the database in `folder`, and ends the thread with exit code 7 before it is open. */
  exitWhileOpening(folder: string): void;
  /** Does nothing. The reply tells that the thread runs. */
  ready(): void;
  /** Ends the thread with an uncaught error. */
  fail(): void;
};

const key = (at: number) => Buffer.from(`key ${at % 1_000}`);

async function work(database: RocksDb): Promise<void> {
  for (let at = 1; ; at++) {
    await Promise.all([
      database.write([{ key: key(at), value: Buffer.alloc(1_000, at) }], at % 2 === 0),
      database.getMany([key(at), key(at + 1)]),
    ]);
    database.page(Buffer.from('key'), Buffer.from('l'), at % 2 === 0, 100);
  }
}

new WorkerServer<DatabaseAsks>('a thread with a database').serve({
  begin: async (folder) => {
    const database = await RocksDb.open(folder, false);
    await database.write([{ key: key(0), value: Buffer.from('written') }], false);
    void work(database);
  },
  exitWhileOpening: (folder) => {
    void RocksDb.open(folder, false);
    process.exit(7);
  },
  ready: () => {},
  fail: () => {
    setImmediate(() => {
      throw new Error('as asked');
    });
  },
});
