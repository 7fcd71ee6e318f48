import { writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { encodeChecksummed } from '#store/records/checksummed-value.js';

/**
 * A process that writes the keys `key 0`, `key 1`, … with the npm package `rocksdb`, which Weir used before.
 * The first argument is the folder, the second argument the number of keys. With `on` as second argument the
 * process writes until a signal kills it. After each batch of 100 keys the process prints how many keys are
 * on disk.
 */
const [folder = '', number = '3000'] = process.argv.slice(2);
const most = number === 'on' ? Number.POSITIVE_INFINITY : Number(number);
const require = createRequire(import.meta.url);
const database = require('rocksdb')(folder);
const called = (start: (done: (error?: Error | null) => void) => void) =>
  new Promise<void>((resolve, reject) => {
    start((error) => (error ? reject(error) : resolve()));
  });
await called((done) => database.open(done));
for (let at = 0; at < most; at += 100) {
  const batch = database.batch();
  for (let one = at; one < at + 100; one++) {
    batch.put(`key ${one}`, await encodeChecksummed(`key ${one}`, Buffer.alloc(1_000, one)));
    batch.put('gone', 'x');
    batch.del('gone');
  }
  await called((done) => batch.write({ sync: true }, done));
  writeSync(1, `${at + 100}\n`);
}
await called((done) => database.close(done));
