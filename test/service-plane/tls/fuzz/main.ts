import { playAll } from '#test/fuzz-campaign.js';
import { makeSeeds } from './seeds.js';
import { targetsOf } from './targets.js';

const seeds = await makeSeeds();
playAll(() => targetsOf(seeds));
