import { testChaos } from '#test/chaos/chaos-test.js';

testChaos(1);
