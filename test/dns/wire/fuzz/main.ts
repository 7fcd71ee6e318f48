import { playAll } from '#test/fuzz-campaign.js';
import { targetsOf } from './targets.js';

playAll(targetsOf);
