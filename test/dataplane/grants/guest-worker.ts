import { parentPort, workerData } from 'node:worker_threads';
import { Gate } from '#dataplane/grants/gate.js';
import { GrantWriter } from '#dataplane/grants/grant-writer.js';
import { Random } from '#test/seed.js';
import { ADDRESSES, expiryNsOf, type GuestInput, SECOND_NS, TEXTS } from './guest-input.js';

const { access, grants, patterns, stop, seed, dies } = workerData as GuestInput;
const stopped = new Int32Array(stop);

function run(): void {
  const writer = new GrantWriter({ grants: new Uint32Array(grants), patterns: new Uint32Array(patterns) }, access);
  const random = new Random(seed);
  const counts = { granted: 0, refused: 0 };
  while (Atomics.load(stopped, 0) === 0) {
    const text = TEXTS[random.below(TEXTS.length)] ?? '';
    const addresses = Array.from({ length: random.between(1, 3) }, () => random.between(1, ADDRESSES));
    const isGranted = writer.grant([text], addresses, expiryNsOf(text, random.between(1, 20)), SECOND_NS);
    counts[isGranted ? 'granted' : 'refused']++;
  }
  parentPort?.postMessage(counts);
}

if (dies) {
  new Gate(access.gate).visit(() => {
    Atomics.store(stopped, 0, 1);
    process.exit();
  });
} else run();
