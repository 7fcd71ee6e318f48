import { writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { seal } from '#store/envelope.js';

/**
 * Writes `key 0`, `key 1` … with the npm package that Weir used before, some of them deleted again, and prints how many are
 * on the disk. It writes on until it is killed if it is told `on`, otherwise it ends after 3,000.
 */
const [folder = '', mode] = process.argv.slice(2);
const require = createRequire(import.meta.url);
const database = require('rocksdb')(folder);
const called = (start: (done: (error?: Error | null) => void) => void) =>
  new Promise<void>((resolve, reject) => {
    start((error) => (error ? reject(error) : resolve()));
  });
await called((done) => database.open(done));
for (let at = 0; mode === 'on' || at < 3_000; at += 100) {
  const batch = database.batch();
  for (let one = at; one < at + 100; one++) {
    batch.put(`key ${one}`, await seal(`key ${one}`, Buffer.alloc(1_000, one)));
    batch.put('gone', 'x');
    batch.del('gone');
  }
  await called((done) => batch.write({ sync: true }, done));
  writeSync(1, `${at + 100}\n`);
}
await called((done) => database.close(done));
