// Writes the code cache of a bundle: the bytecode of the functions that run while the bundle is loaded.
const { renameSync, writeFileSync } = require('node:fs');
const { compile, execute } = require('./bundle.cjs');

const [file] = process.argv.slice(2);
const script = compile(file);
try {
  execute(script, file);
} catch (failure) {
  // The bundle of a thread ends here, after its modules are loaded: this is the main thread.
  if (!file.includes('.worker.')) throw failure;
}
// A node that starts at this moment does not read a part of the cache.
writeFileSync(`${file}.cache.new`, script.createCachedData());
renameSync(`${file}.cache.new`, `${file}.cache`);
