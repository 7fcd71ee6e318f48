import type { DatapathOptions } from '#contracts/datapath-options.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { sampleOf } from '#policy/proof/proof-sample.js';
import { policyOf } from './policies.js';

/**
 * Takes a dataplane over and ends, as far as it gets: `node successor-process.js OPTIONS [DESTINATIONS GENERATION]`, with a
 * policy of so many destinations. Tests kill it on the way.
 */
const [options = '', destinations, generation] = process.argv.slice(2);
const datapath = new LocalDatapath(JSON.parse(options) as DatapathOptions);
datapath.open();
datapath.attach();
if (destinations !== undefined) {
  const policy = policyOf(Number(destinations));
  datapath.stage(compile(policy), Number(generation));
  datapath.prove(sampleOf(policy));
  datapath.flip();
}
datapath.close();
