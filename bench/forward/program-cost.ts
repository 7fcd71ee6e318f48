import { IPPROTO } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { closeFd } from '#dataplane/loader/bpf-fd.js';
import { compile } from '#policy/compile/compile.js';
import type { Bench, Row } from '../bench.js';
import { attachWeir, BY_STACK } from './attached-weir.js';
import { quantile } from './comparison.js';
import { flowsOf, groupsOfTen, policyOf } from './policies.js';
import { openIngress, type Runs, runsOf, runsOfPinned, withProgramTimes } from './program-runs.js';
import { ForwardRig } from './rig.js';

const UDP = { protocol: IPPROTO.udp };
const ROUND = 65_536;
const ROUNDS = 24;
const FIRST_PACKETS = 100_000;
const FIRST_ROUNDS = 10;
const TUPLES = 1 << 20;
const QUIET = 1.1;

/**
 * Measures the run time of BPF programs. Also measures the time to send and forward a frame, which shows
 * whether other work disturbed the round.
 */
class Stopwatch {
  readonly #rounds: { readonly label: string; readonly frameNs: number; readonly ns: number }[] = [];

  constructor(readonly rig: ForwardRig) {}

  /**
   * Measures one round of `count` frames. `read` returns the number and total time of all runs of the BPF
   * programs so far. `round` subtracts `lessNs` nanoseconds for each run.
   */
  round(label: string, count: number, read: () => Runs, lessNs = 0): void {
    const before = read();
    const frameNs = this.rig.send(count, UDP, null);
    const after = read();
    const ns = (after.ns - before.ns - (after.count - before.count) * lessNs) / count;
    this.#rounds.push({ label, frameNs, ns });
  }

  /**
   * Measures one round in which the kernel runs the BPF program directly on `count` packets, one after the
   * other. No frame is sent, so there is no `frameNs`, and every such round counts as undisturbed.
   */
  replay(label: string, count: number, programFd: number, lessNs = 0): void {
    this.#rounds.push({ label, frameNs: 0, ns: this.rig.replay(programFd, count) - lessNs });
  }

  /**
   * Returns the median nanoseconds of the undisturbed rounds with this label. A round is undisturbed if its
   * frames took at most `QUIET` times as long as in the fastest round.
   */
  ns(label: string): number {
    const rounds = this.#rounds.filter((round) => round.label === label);
    const fastest = Math.min(...rounds.map(({ frameNs }) => frameNs));
    const quiet = rounds.filter(({ frameNs }) => frameNs <= fastest * QUIET);
    return quantile(
      quiet.map(({ ns }) => ns),
      0.5,
    );
  }
}

async function measure(rig: ForwardRig): Promise<readonly Row[]> {
  const rows: Row[] = [];
  const watch = new Stopwatch(rig);
  rig.sink();
  rig.use(flowsOf(groupsOfTen(10_000), 4_096));
  const alone = (program: 'empty' | 'one_line', lessNs: number): number => {
    const detach = rig.attach('node', 'lan0', program, 'tcx_ingress');
    for (let round = 0; round < ROUNDS; round++) {
      watch.round(program, ROUND, () => runsOf(rig.frames.programFd(program)), lessNs);
    }
    detach();
    return watch.ns(program);
  };
  const empty = alone('empty', 0);
  rows.push({ what: 'an empty program (subtracted below)', value: empty, unit: 'ns' });
  rows.push({
    what: 'a program that only touches one line of memory for each of 4,096 flows',
    value: alone('one_line', empty),
    unit: 'ns',
  });
  const pinned = (): Runs => runsOfPinned(rig.topology.pinPath);
  for (let round = 0; round < ROUNDS; round++) watch.replay('in a row', ROUND, rig.frames.programFd('empty'));
  const emptyInRow = watch.ns('in a row');
  const inRow = (label: string, count: number): void => {
    const fd = openIngress(rig.topology.pinPath);
    watch.replay(`${label}, in a row`, count, fd, emptyInRow);
    closeFd(fd);
  };

  for (const rules of [10_000, 100_000]) {
    const permits = groupsOfTen(rules);
    const program: Program = compile(policyOf(permits));
    for (const count of [1, 4_096, 65_536]) {
      const label = `${rules.toLocaleString('en')} rules, established, ${count.toLocaleString('en')} flows`;
      rig.use(flowsOf(permits, count));
      const weir = await attachWeir(rig, program, BY_STACK);
      rig.send(count, UDP);
      rig.send(count, { ...UDP, from: 'server' });
      rig.frames.rewind();
      for (let round = 0; round < ROUNDS; round++) watch.round(label, ROUND, pinned, empty);
      for (let round = 0; round < ROUNDS; round++) inRow(label, ROUND);
      await weir.detach();
      const bound = count === 4_096 && { atMost: 90 };
      rows.push({ what: label, value: watch.ns(label), unit: 'ns', ...bound });
      rows.push({ what: `${label}, in a row`, value: watch.ns(`${label}, in a row`), unit: 'ns', ...bound });
    }
    const label = `${rules.toLocaleString('en')} rules, first packet of a flow`;
    rig.use(flowsOf(permits, rules > 10_000 ? TUPLES : 2 * FIRST_PACKETS));
    for (let round = 0; round < FIRST_ROUNDS; round++) {
      const weir = await attachWeir(rig, program, BY_STACK);
      watch.round(label, FIRST_PACKETS, pinned, empty);
      await weir.detach();
      const again = await attachWeir(rig, program, BY_STACK);
      inRow(label, FIRST_PACKETS);
      await again.detach();
    }
    const bound = { atMost: rules > 10_000 ? 800 : 450 };
    rows.push({ what: label, value: watch.ns(label), unit: 'ns', ...bound });
    rows.push({ what: `${label}, in a row`, value: watch.ns(`${label}, in a row`), unit: 'ns', ...bound });
  }
  return rows;
}

async function run(): Promise<readonly Row[]> {
  const rig = await ForwardRig.open('cost', TUPLES);
  try {
    return await withProgramTimes(() => measure(rig));
  } finally {
    await rig.remove();
  }
}

/**
 * Measures the time that the attached programs take for a packet, without an empty program, by the kernel's
 * own statistics.
 */
export const programCostBench: Bench = { name: 'program-cost', run };
