import { afterAll, beforeAll, expect, test } from 'vitest';
import { compile } from '#policy/compile.js';
import { evaluate } from '#policy/evaluate.js';
import { type Group, IPPROTO, type Packet, type Policy } from '#policy/model.js';
import { AUDITED, word } from '#policy/program.js';
import { generatePolicy, packetGenerator, shrink } from '#test/policy/generate.js';
import { Random, seedOf } from '#test/seed.js';
import { type FrameOptions, TCP } from './frame.js';
import { GrantModel, patternsOf } from './grant-model.js';
import { DROPPED, GUARD_BIT, type Judged, type Loaded, loadForTest, PASSED } from './loaded.js';

const POLICIES = 320;
const PACKETS = 3_200;
const FOREIGN_MARK = 0x8000_0001;
const OUT_OF_STATE = [TCP.ack, TCP.syn | TCP.ack, TCP.fin | TCP.ack, TCP.rst, TCP.rst | TCP.ack];

const DROPS = { allow: '', audit: '', deny: 'drop_policy_deny', redirect: 'drop_service_plane_absent' };

const SECOND_NS = 1_000_000_000n;

let kernel: Loaded;
let model: GrantModel;
beforeAll(() => {
  kernel = loadForTest();
  model = new GrantModel(kernel);
});
afterAll(() => kernel.close());

type Wanted = Judged & { readonly flows: number; readonly counter: string };

/** What the specification asks for a packet that belongs to no flow, with the words of the reference evaluator. */
function wanted(policy: Policy, packet: Packet, options: FrameOptions): Wanted {
  const { rank, verdict, audited } = evaluate(policy, packet, model);
  const decided = word(rank, verdict, audited);
  const outOfState = packet.protocol === IPPROTO.tcp && options.tcpFlags !== TCP.syn;
  const softened = (decided & AUDITED) !== 0;
  const passes = outOfState ? softened : verdict === 'allow' || verdict === 'audit' || softened;
  const isQuery = [8, 13, 15, 17].includes(packet.icmpType) && packet.icmpCode === 0;
  const opens = passes && !outOfState && (packet.protocol !== IPPROTO.icmp || isQuery);
  return {
    returned: passes ? PASSED : DROPPED,
    word: decided,
    mark: passes ? (FOREIGN_MARK | GUARD_BIT) >>> 0 : FOREIGN_MARK,
    flows: opens ? 1 : 0,
    counter: passes ? (verdict === 'allow' ? 'allow' : 'audit') : outOfState ? 'drop_out_of_state' : DROPS[verdict],
  };
}

function found(packet: Packet, options: FrameOptions): Omit<Wanted, 'counter'> {
  // Bits of the mask that are set on arrival were set by somebody else.
  const judged = kernel.judge(packet, options, (FOREIGN_MARK | 0x00f0_0000) >>> 0);
  return { ...judged, flows: kernel.flushFlows() };
}

function equal(a: Omit<Wanted, 'counter'>, b: Wanted): boolean {
  return a.returned === b.returned && a.word === b.word && a.mark === b.mark && a.flows === b.flows;
}

/** Puts a policy in force, and grants some of the addresses that its packets go to; some for a time that is over. */
function activate(random: Random, policy: Policy): () => Packet {
  kernel.activate(compile(policy));
  model.activated(policy);
  const packet = packetGenerator(random, policy);
  for (const text of patternsOf(policy)) {
    for (let count = random.below(40); count > 0; count--) {
      const inSeconds = random.chance(0.7) ? 3_600n : random.chance(0.5) ? -1n : -3_600n;
      model.grant(text, packet().destination, process.hrtime.bigint() + inSeconds * SECOND_NS);
      if (random.chance(0.1)) model.revoke(text, packet().destination);
    }
  }
  return packet;
}

/** While a policy is made smaller it keeps its rules' patterns in force, so that nothing granted is lost. */
function keepingPatterns(less: Policy, whole: Policy): Policy {
  const [rule] = whole.groups.flatMap(({ rules }) => rules);
  if (rule === undefined) return less;
  const rules = patternsOf(whole).map((text) => ({ ...rule, hostname: { kind: 'regex' as const, text } }));
  const keeper = { ...(whole.groups[0] as Group), id: 'keeper', sources: [], rules, defaultAction: undefined };
  return { ...less, groups: [...less.groups, keeper] };
}

test('the kernel judges as the reference evaluator does', { timeout: 300_000 }, () => {
  const seed = seedOf(31_337);
  let packets = 0;
  const counted: Record<string, number> = { half_opened: 0 };
  for (let number = 0; number < POLICIES; number++) {
    const random = new Random(seed + number * 7919);
    const policy = generatePolicy(random, number % 4 === 0 ? { groups: 20, rules: 8 } : {});
    const packet = activate(random, policy);
    for (let count = 0; count < PACKETS; count++, packets++) {
      const tried = packet();
      const options = {
        tcpFlags: random.chance(0.1) ? random.pick(OUT_OF_STATE) : TCP.syn,
        optionBytes: random.chance(0.1) ? 4 * random.between(1, 10) : 0,
      };
      const expected = wanted(policy, tried, options);
      counted[expected.counter] = (counted[expected.counter] ?? 0) + 1;
      counted.half_opened = (counted.half_opened ?? 0) + expected.flows;
      if (equal(found(tried, options), expected)) continue;
      const smallest = shrink(policy, tried, (less, same) => {
        const kept = keepingPatterns(less, policy);
        kernel.activate(compile(kept));
        return !equal(found(same, options), wanted(kept, same, options));
      });
      const kept = keepingPatterns(smallest.policy, policy);
      kernel.activate(compile(kept));
      const compared = {
        found: found(smallest.packet, options),
        wanted: wanted(kept, smallest.packet, options),
        granted: model.patternsOf(smallest.packet.destination),
      };
      expect.fail(JSON.stringify({ seed, number, options, ...compared, ...smallest }, undefined, 1));
    }
  }
  console.log(`differential: ${packets} packets, ${POLICIES} policies, seed ${seed}`);
  expect(kernel.counted()).toEqual(counted);
  expect(Object.keys(counted).sort()).toEqual([
    'allow',
    'audit',
    'drop_out_of_state',
    'drop_policy_deny',
    'drop_service_plane_absent',
    'half_opened',
  ]);
});
