#!/usr/bin/env node
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
let cli;
try {
  cli = require('../dist/node/weir.cjs');
} catch (error) {
  if (error?.code !== 'MODULE_NOT_FOUND') throw error;
  console.error(`weir: this copy is not built or not complete; run npm run setup first (${error.message})`);
  process.exit(1);
}
process.exitCode = await cli.weir(process.argv.slice(2));
