import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { samplesOf } from '#policy/proof/proof-sample.js';
import { policyOf } from './policies.js';

/**
 * A program that takes over the datapath of an earlier process and exits: `node successor-process.js OPTIONS
 * [DESTINATIONS GENERATION]`. With DESTINATIONS, it also puts a policy with that many extra rules in force
 * as generation GENERATION. Tests kill this program during the takeover.
 */
const [options = '', destinations, generation] = process.argv.slice(2);
const datapath = new LocalDatapath(JSON.parse(options) as DatapathOptions);
datapath.open();
datapath.attach();
if (destinations !== undefined) {
  const policy = policyOf(Number(destinations));
  datapath.stage(compile(policy), Number(generation));
  datapath.prove(samplesOf(policy));
  datapath.flip();
}
datapath.close();
