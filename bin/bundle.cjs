'use strict';
const { existsSync, readFileSync } = require('node:fs');
const { pathToFileURL } = require('node:url');
const { Script } = require('node:vm');

/**
 * Compiles a bundle of `dist/node`. V8 takes the bytecode from the code cache `FILE.cache` that the build has
 * written, and compiles the source if another version of Node.js runs (`cachedDataRejected`).
 */
function compile(file) {
  const cache = `${file}.cache`;
  // A bundle is a function expression in ASCII characters. So Latin-1 is right, and V8 uses the text that was
  // read, without a copy in its heap.
  return new Script(readFileSync(file, 'latin1'), {
    filename: file,
    cachedData: existsSync(cache) ? readFileSync(cache) : undefined,
  });
}

/** Runs a compiled bundle as a CommonJS module, and returns its exports. */
function execute(script, file) {
  const module = { exports: {} };
  script.runInThisContext()(module.exports, require, module, pathToFileURL(file).href);
  return module.exports;
}

module.exports = { compile, execute, load: (file) => execute(compile(file), file) };
