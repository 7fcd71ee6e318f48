#!/usr/bin/env node
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

// This file must have no syntax that an old Node.js refuses, because then it could not print the warning.
const supported = require('../package.json').engines.node;
if (!isSupported(process.versions.node, supported)) {
  console.error(
    `weir: Node.js ${process.versions.node} is not supported: this version of Weir is tested with ${supported}`,
  );
}

const END_MS = 5_000;

let cli;
try {
  cli = require('../dist/node/weir.cjs');
} catch (error) {
  if (error.code !== 'MODULE_NOT_FOUND') throw error;
  console.error(`weir: this copy is not built or not complete; run npm run setup first (${error.message})`);
  process.exit(1);
}
cli.weir(process.argv.slice(2)).then((code) => {
  process.exitCode = code;
  // A command that has ended must not stay because of a connection or a thread that a library left open.
  setTimeout(() => {
    console.error(`weir: still open at the end: ${process.getActiveResourcesInfo().join(', ')}`);
    process.exit();
  }, END_MS).unref();
});

/** Returns whether a version has the major version of one of the ranges `^A.B.C`, and is not older. */
function isSupported(version, ranges) {
  const [major, minor, patch] = version.split('.').map(Number);
  return ranges.split(' || ').some((range) => {
    const [a, b, c] = range.slice(1).split('.').map(Number);
    return major === a && (minor > b || (minor === b && patch >= c));
  });
}
