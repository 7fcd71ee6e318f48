// Runs a node with traffic until it gets SIGINT or SIGTERM, to look at the console: `node
// dist/test/console/demo-process.js`. Prints the address of the node and an admin token.
import { createConsoleNode } from './console-node.js';

const node = await createConsoleNode(`demo${process.pid % 1_000}`);
process.stdout.write(`${node.rig.node.url}/console/\n${await node.rig.node.token()}\n`);
const keep = setInterval(() => {}, 60_000);
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    clearInterval(keep);
    void node.remove().then(() => process.exit());
  });
