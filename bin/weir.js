#!/usr/bin/env node
let cli;
try {
  cli = await import('../dist/node/weir.js');
} catch (error) {
  if (error?.code !== 'ERR_MODULE_NOT_FOUND') throw error;
  console.error(`weir: this copy is not built or not complete; run npm run setup first (${error.message})`);
  process.exit(1);
}
process.exitCode = await cli.weir(process.argv.slice(2));
