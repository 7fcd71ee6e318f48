// Writes the code cache of a bundle: the bytecode of the functions that run while the bundle is loaded.
const { writeFileSync } = require('node:fs');
const { compile, execute } = require('../bin/bundle.cjs');

const [file] = process.argv.slice(2);
const script = compile(file);
try {
  execute(script, file);
} catch (failure) {
  // The bundle of a thread ends here, after its modules are loaded: this is the main thread.
  if (!file.includes('.worker.')) throw failure;
}
writeFileSync(`${file}.cache`, script.createCachedData());
