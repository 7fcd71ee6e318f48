import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { cpus, release, totalmem } from 'node:os';
import { analysisBench } from './analysis.js';
import { isKept, type Row, tableOf } from './bench.js';
import { classifierBench } from './classifier.js';
import { clusterBench } from './cluster.js';
import { clusterFindingsBench } from './cluster-findings.js';
import { clusterScaleBench } from './cluster-scale.js';
import { grantsBench } from './dns/grants.js';
import { dnsRaceBench } from './dns/race.js';
import { dnsBench } from './dns.js';
import { eventsBench } from './events.js';
import { flowHistoryBench } from './flow-history.js';
import { connectionsBench } from './forward/connections.js';
import { forwardingBench } from './forward/forwarding.js';
import { ipv6ForwardingBench } from './forward/ipv6-forwarding.js';
import { natBench } from './forward/nat.js';
import { programCostBench } from './forward/program-cost.js';
import { survivalBench } from './forward/survival.js';
import { historyBench } from './history.js';
import { httpBench } from './http.js';
import { inspectionBench } from './inspection.js';
import { inspectionMemoryBench } from './inspection-memory.js';
import { inspectionThreadsBench } from './inspection-threads.js';
import { ipv6Bench } from './ipv6.js';
import { learnedBench } from './learned.js';
import { membersBench } from './members.js';
import { memoryBench } from './memory.js';
import { namesBench } from './names.js';
import { observeBench } from './observe.js';
import { policyWriteBench } from './policy-write.js';
import { sourceGroupsBench } from './source-groups.js';
import { spliceBench } from './splice.js';
import { startUpBench } from './start-up.js';

const benches = [
  classifierBench,
  learnedBench,
  membersBench,
  ipv6Bench,
  dnsBench,
  dnsRaceBench,
  grantsBench,
  namesBench,
  forwardingBench,
  ipv6ForwardingBench,
  connectionsBench,
  natBench,
  programCostBench,
  survivalBench,
  eventsBench,
  observeBench,
  flowHistoryBench,
  inspectionBench,
  inspectionThreadsBench,
  inspectionMemoryBench,
  spliceBench,
  sourceGroupsBench,
  policyWriteBench,
  historyBench,
  analysisBench,
  startUpBench,
  memoryBench,
  httpBench,
  clusterBench,
  clusterScaleBench,
  clusterFindingsBench,
];

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !benches.some((bench) => bench.name === name));
if (unknown.length > 0) {
  console.error(`unknown benchmarks: ${unknown.join(', ')}; known: ${benches.map((bench) => bench.name).join(', ')}`);
  process.exit(2);
}
// If the sysctl `kernel.bpf_stats_enabled` is on, the kernel measures each run of a BPF program. This
// measurement makes the programs slower and would distort the results.
if (readFileSync('/proc/sys/kernel/bpf_stats_enabled', 'utf8').trim() !== '0') {
  console.error('the sysctl kernel.bpf_stats_enabled is on, which makes BPF programs slower: switch it off first');
  process.exit(2);
}
const machine = {
  cpu: cpus()[0]?.model ?? 'unknown',
  cores: cpus().length,
  memoryGiB: Math.round(totalmem() / 2 ** 30),
  kernel: release(),
  node: process.version,
};
console.log(
  `${machine.cpu}, ${machine.cores} cores, ${machine.memoryGiB} GiB, Linux ${machine.kernel}, Node ${machine.node}`,
);
const results: Record<string, readonly Row[]> = {};
const failed: string[] = [];
await mkdir('bench/results', { recursive: true });
const file = `bench/results/${new Date().toISOString().replace(/[:.]/g, '-')}.json`;
for (const bench of benches.filter(({ name }) => wanted.length === 0 || wanted.includes(name))) {
  console.log(`\n${bench.name}`);
  try {
    results[bench.name] = await bench.run();
  } catch (failure) {
    failed.push(bench.name);
    console.error(failure);
    continue;
  }
  console.log(tableOf(results[bench.name] ?? []));
  // Write the results after each benchmark, so that a later failure loses no figures.
  await writeFile(file, `${JSON.stringify({ machine, results }, null, 2)}\n`);
}
const missed = Object.values(results)
  .flat()
  .filter((row) => !isKept(row)).length;
console.log(`\n${file}\n${missed === 0 ? 'every bound kept' : `${missed} bounds missed`}`);
if (failed.length > 0) console.log(`failed: ${failed.join(', ')}`);
process.exitCode = missed === 0 && failed.length === 0 ? 0 : 1;
