import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { mask } from '#addresses/ip-address.js';
import { LINE_WORDS } from '#contracts/datapath/datapath-numbers.js';
import { wordsOf } from '#contracts/policy/address-words.js';
import type { Packet, Policy } from '#contracts/policy/policy-model.js';
import { OWNER_CELL, PACKET_CELLS, type ProofSample } from '#contracts/policy/proof-types.js';
import { verdictOf, verdictWord } from '#contracts/policy/verdict-word.js';
import { NEXT_WORD } from '#dataplane/image/class-tree.js';
import { HEADER, type Image, IPV6_HEADER, layout } from '#dataplane/image/program-image.js';
import { type LoadedIpv6Object, loadIpv6Object } from '#dataplane/object/loaded-object.js';
import { compile } from '#policy/compile/compile.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { ProofMemory } from '#policy/proof/proof-memory.js';
import { sampleOf } from '#policy/proof/proof-sample.js';
import {
  type GenerateOptions,
  generateMembership,
  generatePolicy,
  ipv6PacketGenerator,
} from '#test/policy/generate.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { Random, seedOf } from '#test/seed.js';
import { type Loaded, loadForTest } from './loaded.js';
import { classPlaces } from './program/image-walk.js';

const seed = seedOf(61_061);
const POLICIES = Number(process.env.WEIR_POLICIES ?? 100);
const PACKETS = 1_000;
const SLOT_LINES = 65_536;
const NONE = 0xffff_ffff;

let kernel: Loaded;
let ipv6: LoadedIpv6Object;
beforeAll(() => {
  kernel = loadForTest({ slotLines: SLOT_LINES });
  ipv6 = loadIpv6Object(kernel);
});
afterAll(() => {
  ipv6.close();
  kernel.close();
});

function bothFamilies(random: Random, options: GenerateOptions = {}): Policy {
  return generatePolicy(random, { ...options, families: ['ipv4', 'ipv6'] });
}

function packetsOf(random: Random, judged: Policy): Packet<bigint>[] {
  const next = ipv6PacketGenerator(random, judged);
  return Array.from({ length: PACKETS }, next);
}

function sampleWith(packets: readonly Packet<bigint>[], wordFor: (packet: Packet<bigint>) => number): ProofSample {
  const cells = new Uint32Array(packets.length * PACKET_CELLS.ipv6);
  for (const [index, packet] of packets.entries()) {
    const { source, destination, sourcePort, destinationPort, protocol, icmpType, icmpCode } = packet;
    const ports = sourcePort * 0x1_0000 + destinationPort;
    const kind = protocol * 0x1_0000 + icmpType * 256 + icmpCode;
    cells.set([...wordsOf(source), ...wordsOf(destination), ports, kind, 0], index * PACKET_CELLS.ipv6);
  }
  return {
    family: 'ipv6',
    packets: cells,
    expected: Uint32Array.from(packets, wordFor),
    classes: null,
    complete: false,
  };
}

function evaluatedWord(judged: Policy, packet: Packet<bigint>): number {
  const { rank, verdict, audited } = evaluate(judged, packet);
  return verdictWord(rank, verdict, audited);
}

/** Fills a program slot with the image, and expects the kernel to give the words of the sample. */
function expectWords(image: Image, sample: ProofSample, what: unknown): void {
  kernel.slots.fill(image, 1);
  const mismatch = ipv6.prover.mismatch(sample, kernel.slots.filledSlot);
  if (mismatch !== null) expect.fail(inspect({ mismatch, what }, { depth: null }));
}

describe('the BPF object of IPv6', () => {
  test('the BPF object of IPv6 gives the proof packets of Kubernetes members of both families the verdict words of the reference evaluator', () => {
    let owned = 0;
    for (let number = 0; number < POLICIES / 2; number++) {
      const random = new Random(seed + number);
      const size = number % 10 === 0 ? { groups: 4, rules: 400 } : { groups: 8, rules: 5 };
      const judged = bothFamilies(random, { ...size, selectors: 0.6 });
      const membership = generateMembership(random, judged, ['ipv4', 'ipv6']);
      const sample = sampleOf(judged, new ProofMemory('ipv6'), membership);
      for (let at = OWNER_CELL.ipv6; at < sample.packets.length; at += PACKET_CELLS.ipv6)
        owned += sample.packets[at] ? 1 : 0;
      expectWords(layout(compile(judged, { ipv6: true, membership })), sample, { number });
    }
    expect(owned).toBeGreaterThan(5_000);
  });

  test('the BPF object of IPv6 gives each packet the verdict word of the reference evaluator', () => {
    const words = new Set<number>();
    let proved = 0;
    const verdicts = new Set<string | undefined>();
    for (let number = 0; number < POLICIES; number++) {
      const random = new Random(seed + number * 7_919);
      const judged = bothFamilies(random, number % 4 === 0 ? { groups: 20, rules: 10 } : {});
      const sample = sampleWith(packetsOf(random, judged), (packet) => evaluatedWord(judged, packet));
      for (const word of sample.expected) {
        words.add(word);
        verdicts.add(verdictOf(word));
      }
      const image = layout(compile(judged, { ipv6: true }));
      expectWords(image, sample, { seed, number, judged });
      if (number % 4 !== 0) continue;
      // The image in the slot has the tables of both families.
      const { filledSlot } = kernel.slots;
      const proofs = [sampleOf(judged), sampleOf(judged, new ProofMemory('ipv6'))] as const;
      const mismatches = [kernel.prover.mismatch(proofs[0], filledSlot), ipv6.prover.mismatch(proofs[1], filledSlot)];
      proved += proofs[1].expected.length;
      if (mismatches.some((one) => one !== null)) expect.fail(inspect({ seed, number, mismatches }, { depth: null }));
    }
    console.log(
      `IPv6: ${POLICIES} policies × ${PACKETS} packets, ${words.size} verdict words; ${proved} packets of proofs; seed ${seed}`,
    );
    expect([...verdicts].sort()).toEqual(['allow', 'audit', 'deny', 'redirect']);
  });

  test('the BPF object of IPv6 finds classes in trees of several levels for each word of an address', () => {
    const random = new Random(seed);
    const networks = Array.from({ length: 3_000 }, (_, index) => {
      const [shared, length] = random.pick([
        [0, 32],
        [32, 64],
        [64, 96],
        [96, 128],
      ] as const);
      const fixed = 0x2001_0db8_0000_0001_0000_0002_0000_0003n;
      const words = [0, 1, 2, 3].reduce((sum) => (sum << 32n) | BigInt(random.word()), 0n);
      const address = mask(fixed, shared) | (words & ((1n << BigInt(128 - shared)) - 1n));
      return { address: mask(address, length), length, index };
    });
    const rules = networks.map((prefix, index) =>
      rule({ id: `r${index}`, destinations: [prefix], action: index % 2 === 0 ? 'allow' : 'deny' }),
    );
    const judged = policy([group(['::/0'], rules)], { action: 'allow' });
    const sample = sampleWith(packetsOf(random, judged), (packet) => evaluatedWord(judged, packet));
    const image = layout(compile(judged, { ipv6: true }));
    expectWords(image, sample, { seed });
    const ref = image.words[(image.words[HEADER.ipv6] ?? 0) * LINE_WORDS + IPV6_HEADER.classes] ?? 0;
    expect({ levels: ref & 7 }).toEqual({ levels: 2 });
    expect(new Set(sample.expected).size).toBeGreaterThan(200);
  });

  test('the BPF object of IPv6 gives a packet the verdict word 0 if the class of an address is missing in the image, and gives other packets their verdict', () => {
    let refused = 0;
    let kept = 0;
    for (let number = 0; number < 30; number++) {
      const random = new Random(seed + number * 104_729);
      const judged: Policy = {
        ...bothFamilies(random),
        default: { action: 'allow', mode: 'enforce', from: 'fallback' },
      };
      const packets = packetsOf(random, judged);
      const image = layout(compile(judged, { ipv6: true }));
      const places = packets.map(({ source, destination }) =>
        [source, destination].flatMap((one) => classPlaces(image, one)),
      );
      for (let tries = 0; tries < 10; tries++) {
        const place = random.pick(random.pick(places));
        const wrong = random.pick([0, NEXT_WORD, NEXT_WORD + SLOT_LINES * 8, NONE]);
        let index = 0;
        const sample = sampleWith(packets, (packet) => {
          const isRefused = places[index++]?.includes(place) === true;
          if (isRefused) refused++;
          else kept++;
          return isRefused ? 0 : evaluatedWord(judged, packet);
        });
        expectWords({ ...image, words: image.words.with(place, wrong) }, sample, { seed, number, place, wrong });
      }
    }
    console.log(`IPv6: of the packets in damaged images ${refused} refused, ${kept} decided, seed ${seed}`);
    expect(Math.min(refused, kept)).toBeGreaterThan(10_000);
  });

  test.each<[string, (image: Image) => Image]>([
    ['the image has no header of IPv6', (image) => withHeader(image, NONE)],
    ['the header of IPv6 is that of the image', (image) => withHeader(image, 0)],
    ['the header of IPv6 is beyond the slot', (image) => withHeader(image, SLOT_LINES)],
    ['the header has no class tree', (image) => withClasses(image, NONE)],
    ['the class tree is the header of the image', (image) => withClasses(image, 0)],
    ['the class tree is beyond the slot', (image) => withClasses(image, SLOT_LINES * 8)],
    ['the class tree has the value 0', (image) => withOneValue(image, () => 0)],
    ['the class tree refers to itself', (image) => withOneValue(image, (ref) => NEXT_WORD + ref)],
    ['the class tree refers to a tree of zeros', (image) => withOneValue(image, (ref) => NEXT_WORD + ref + 1)],
    ['the image has another magic number', (image) => ({ ...image, words: image.words.with(HEADER.magic, 1) })],
  ])('the BPF object of IPv6 gives each packet the verdict word 0 if %s', (name, damage) => {
    for (let number = 0; number < 5; number++) {
      const random = new Random(seed + number);
      const judged: Policy = {
        ...bothFamilies(random),
        default: { action: 'allow', mode: 'enforce', from: 'fallback' },
      };
      const packets = packetsOf(random, judged);
      const image = layout(compile(judged, { ipv6: true }));
      expectWords(
        image,
        sampleWith(packets, (packet) => evaluatedWord(judged, packet)),
        { seed, number },
      );
      expectWords(
        damage(image),
        sampleWith(packets, () => 0),
        { seed, number, name },
      );
    }
  });

  test('the BPF object of IPv6 is not accepted as verified (proof) with a sample of IPv4 packets only', () => {
    const judged = policy([]);
    kernel.slots.fill(layout(compile(judged, { ipv6: true })), 1);
    expect(() => ipv6.prover.mismatch(sampleOf(judged), kernel.slots.filledSlot)).toThrow('got ipv4 packets');
  });
});

function withHeader(image: Image, line: number): Image {
  return { ...image, words: image.words.with(HEADER.ipv6, line) };
}

function withClasses(image: Image, ref: number): Image {
  const header = image.words[HEADER.ipv6] ?? 0;
  return { ...image, words: image.words.with(header * LINE_WORDS + IPV6_HEADER.classes, ref) };
}

/**
 * Replaces the class tree by a tree of half a line with one value, behind the image. The other half of the
 * line is zeros.
 */
function withOneValue(image: Image, valueFor: (ref: number) => number): Image {
  const ref = image.lines * 8 + 6;
  const words = new Uint32Array(image.words.length + LINE_WORDS);
  words.set(image.words);
  words.set([0, NONE, NONE, NONE], image.words.length);
  words.fill(valueFor(ref), image.words.length + 4, image.words.length + 8);
  return withClasses({ words, lines: image.lines + 1 }, ref);
}
