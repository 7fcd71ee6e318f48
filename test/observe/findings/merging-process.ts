import { writeSync } from 'node:fs';
import { openFindings } from '#observe/findings/store/findings-folder.js';
import { seen } from './seen.js';

/**
 * A process that merges 300 findings per round until a signal kills it. The process prints the number of a
 * round when the merge of the round is complete.
 */
const options = { retentionMs: 1_000_000, maxEntries: 1_000, sinks: ['file'], now: () => 500_000 };
const ledger = openFindings(process.argv[2] ?? '', options, () => {});
let round = Number(process.argv[3] ?? 0);
for (;;) {
  round += 1;
  const deltas = Array.from({ length: 300 }, (_, at) =>
    seen({ source: `10.0.${at >> 8}.${at & 255}`, firstMs: 1_000, lastMs: 1_000 + round }),
  );
  await ledger.merge(deltas);
  writeSync(1, `${round}\n`);
}
