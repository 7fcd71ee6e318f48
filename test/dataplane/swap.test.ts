import { afterEach, beforeEach, expect, test } from 'vitest';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { NONE, type Program } from '#contracts/policy/program.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { type Image, layout } from '#dataplane/image/program-image.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { denyAll } from '#test/kernel/policies.js';
import { MAX_FRAME, writeFrame } from './frame.js';
import { type Loaded, loadForTest } from './loaded.js';

const SWAPS = 400;

/** An ICMP error opens no flow, so the datapath classifies every packet of the load by the policy. */
const packet: Packet<number> = {
  source: 0x0a00_0001,
  destination: 0x0a00_0102,
  protocol: IPPROTO.icmp,
  sourcePort: 0,
  destinationPort: 0,
  icmpType: 3,
  icmpCode: 0,
};

const first = Uint32Array.of(0);

/**
 * Returns a program image that gives the verdict of `side` if every search step reads this image. Each step
 * leads to the index `side` of the next table. In the other image, this index leads to a deny.
 */
function sided(side: 0 | 1): Image {
  const mine = verdictWord(1, side === 0 ? 'allow' : 'audit', side === 1);
  const mixed = verdictWord(0, 'deny', false);
  const own = (good: number, bad: number): Uint32Array => Uint32Array.from([0, 1], (at) => (at === side ? good : bad));
  const program: Program = {
    sources: { starts: first, values: Uint32Array.of(side) },
    lists: {
      offsets: Uint32Array.of(0, 1, 2),
      ruleBlocks: own(side, 1 - side),
      defaults: Uint32Array.of(mixed, mixed),
    },
    ruleBlocks: {
      destinations: Uint32Array.of(0, 1),
      wildcards: Uint32Array.of(NONE, NONE),
      named: Uint32Array.of(NONE, NONE),
    },
    destinations: {
      offsets: Uint32Array.of(0, 1, 2),
      starts: Uint32Array.of(0, 0),
      values: own(side, 1 - side),
    },
    portMaps: { offsets: Uint32Array.of(0, 1, 2), starts: Uint32Array.of(0, 0), values: own(mine, mixed) },
    sourcePortMaps: { offsets: first, starts: new Uint32Array(), values: new Uint32Array() },
    ipv6: null,
    names: [],
    members: null,
    namePortMaps: { ruleBlocks: new Uint32Array(), names: new Uint32Array(), portMaps: new Uint32Array() },
    lookups: denyAll.lookups,
    ranks: 2,
    ruleNames: denyAll.ruleNames,
  };
  return layout(program);
}

const images = [sided(0), sided(1)] as const;
/**
 * Each image is used for two swaps in succession, so that each slot is always refilled with the other image.
 */
const image = (swap: number): Image => ((swap >> 1) % 2 === 0 ? images[0] : images[1]);

let kernel: Loaded;
beforeEach(() => {
  kernel = loadForTest({ slotLines: 16 });
  kernel.slots.fill(image(0), 1);
  kernel.slots.flip();
});
afterEach(() => kernel.close());

type Load = {
  /** Resolves when packets of the current batch are being classified. */
  underWay(): Promise<void>;
  isUnderWay(): boolean;
  /** Ends the load. Returns the number of classified packets. */
  stop(): Promise<number>;
};

/** Runs packets through the ingress hook in another thread until `stop` is called. */
function load(): Load {
  const frame = new Uint8Array(MAX_FRAME);
  const length = writeFrame(frame, packet);
  const run = new TestRun(kernel.object.programFd('weir_ingress'), frame, new Uint8Array(192), undefined);
  const batch = 20_000;
  let stopped = false;
  let before = kernel.classifiedPackets();
  const ended = (async () => {
    let count = 0;
    for (; !stopped; count += batch) {
      before = kernel.classifiedPackets();
      await run.runBeside(length, batch);
    }
    return count;
  })();
  const isUnderWay = (): boolean => {
    const now = kernel.classifiedPackets();
    return now > before && now < before + batch;
  };
  return {
    isUnderWay,
    underWay: async () => {
      while (!isUnderWay()) await breathe();
    },
    stop: () => {
      stopped = true;
      return ended;
    },
  };
}

async function breathe(): Promise<void> {
  await new Promise<void>((resolve) => setImmediate(resolve));
}

test(`no packet is classified by a mix of two compiled policies in ${SWAPS} policy changes under load`, async () => {
  const running = load();
  let inside = 0;
  for (let swap = 1; swap <= SWAPS; swap++) {
    kernel.slots.fill(image(swap), swap);
    // `fill` waits until earlier packets have ended. New packets must be in progress when `flip` stores the
    // active word.
    await running.underWay();
    kernel.slots.flip();
    if (image(swap) !== image(swap - 1)) inside += running.isUnderWay() ? 1 : 0;
  }
  const judged = await running.stop();
  const { allow = 0, audit = 0, ...rest } = kernel.counted();
  console.log(
    `${SWAPS} swaps, ${judged} packets: ${allow} by the one program, ${audit} by the other; ${inside} changes in mid-run`,
  );
  expect(inside).toBeGreaterThan(SWAPS / 4);
  expect(rest).toEqual({});
  expect(allow + audit).toBe(judged);
  expect(Math.min(allow, audit)).toBeGreaterThan(judged / 100);
});

test('a compiled policy that is overwritten while packets read it gives mixed verdicts', async () => {
  const running = load();
  // A mixed verdict needs the load and the overwriting thread at the same time on two CPUs. Other processes
  // may use these CPUs, so the test tries for up to 50 seconds.
  const until = performance.now() + 50_000;
  for (let swap = 1; kernel.counted().drop_policy_deny === undefined && performance.now() < until; swap++) {
    // Without a grace period, the second of two swaps overwrites a slot that a packet may still read, and the
    // packet gets a mixed verdict.
    for (let times = 0; times < 200; times++) {
      kernel.slots.fill(image(swap + times), swap);
      kernel.slots.flip();
      kernel.slots.assumeGrace();
    }
    await breathe();
  }
  await running.stop();
  expect(kernel.counted()).toHaveProperty('drop_policy_deny');
});
