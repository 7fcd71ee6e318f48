import { expect, test } from 'vitest';
import { EVERY_ADDRESS } from '#addresses/ip-address.js';
import { lookupsOf } from '#contracts/dns/dns-lookups.js';
import { type Membership, NO_MEMBERS } from '#contracts/kubernetes/membership.js';
import type { Address, Packet } from '#contracts/policy/policy-model.js';
import { verdictOf, verdictWord } from '#contracts/policy/verdict-word.js';
import { ActiveLookups } from '#dns/resolver/active-lookups.js';
import { compile } from '#policy/compile/compile.js';
import { CompileMemory } from '#policy/compile/compile-memory.js';
import { evaluateLookup } from '#policy/evaluate/lookup/evaluate-lookup.js';
import { MemberIndex } from '#policy/model/sources/member-index.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import { expectEqual } from '#test/expect-equal.js';
import { generateMembership, generatePolicy, ipv6PacketGenerator, packetGenerator } from '#test/policy/generate.js';
import { wireNameOf } from '#test/policy/wire-name.js';
import { Random, seedOf } from '#test/seed.js';

const seed = seedOf(20_261_128);
const NAMES = ['api.example.com', 'www.example.com', 'example.org'];

test('`ActiveLookups` (decides DNS queries by the policy in force) returns for random policies the verdict of the reference evaluator, while Kubernetes members of both IP families change', () => {
  const counts = { owned: 0, denyOnly: 0, unowned: 0 };
  for (let number = 0; number < 150; number++) {
    const random = new Random(seed + number * 7919);
    const judged = generatePolicy(random, { groups: 8, rules: 5, selectors: 0.5, families: ['ipv4', 'ipv6'] });
    const given = generateMembership(random, judged, ['ipv4', 'ipv6']);
    const program = compile(judged, { ipv6: true, membership: given });
    const index = program.members === null ? null : new MemberIndex(program.members, program.ipv6);
    const record = new MemberRecord();
    const active = new ActiveLookups(lookupsOf(program, 1), record);
    const denyOnly = { ...given.scope, podNetworks: [...EVERY_ADDRESS.ipv4, ...EVERY_ADDRESS.ipv6] };
    const wordOf = (source: Address, name: string, membership: Membership): number => {
      const { rank, verdict, audited } = evaluateLookup(judged, source, name, membership);
      return verdictWord(rank, verdict, audited);
    };
    const { podNetworks } = given.scope;
    const packets = [packetGenerator(random, judged, podNetworks), ipv6PacketGenerator(random, judged, podNetworks)];
    const next = (): Packet => random.pick(packets)();
    const source = next().source;
    const asUnknown = { resolution: index === null ? given.scope : denyOnly, members: NO_MEMBERS };
    expect(active.decide(source, wireNameOf(NAMES[0] ?? ''))).toBe(wordOf(source, NAMES[0] ?? '', asUnknown));
    record.replace(given.list);
    for (let turn = 0; turn < 150; turn++) {
      const tried = next().source;
      if (random.chance(0.5)) {
        const set = random.pick([0, ...given.list.added.map((one) => one.number)]);
        record.change({ added: [], addresses: [tried], sets: Uint32Array.of(set), dropped: [] });
      }
      const set = record.setOf(tried);
      const isCompiled = index === null || set === undefined || index.has(tried, index.indexOf(set));
      counts[set === undefined ? 'unowned' : isCompiled ? 'owned' : 'denyOnly'] += 1;
      const membership = isCompiled
        ? { resolution: given.scope, members: record }
        : { resolution: denyOnly, members: NO_MEMBERS };
      const name = random.pick(NAMES);
      const about = { number, turn, tried, set };
      expectEqual(
        { ...about, word: active.decide(tried, wireNameOf(name)) },
        { ...about, word: wordOf(tried, name, membership) },
      );
    }
  }
  expect(Math.min(...Object.values(counts))).toBeGreaterThan(100);
});

test('`ActiveLookups` returns for random policies and sources of both families the verdict of the reference evaluator', () => {
  const counts = { allow: 0, deny: 0 };
  const memory = new CompileMemory();
  for (let number = 0; number < 150; number++) {
    const random = new Random(seed + number * 104_729);
    const judged = generatePolicy(random, { groups: 8, rules: 5, families: ['ipv4', 'ipv6'] });
    const active = new ActiveLookups(lookupsOf(compile(judged, { ipv6: true, memory }), 1), new MemberRecord());
    const packets = [packetGenerator(random, judged), ipv6PacketGenerator(random, judged)];
    for (let turn = 0; turn < 100; turn++) {
      const { source } = random.pick(packets)();
      const name = random.pick(NAMES);
      const { rank, verdict, audited } = evaluateLookup(judged, source, name);
      const word = active.decide(source, wireNameOf(name));
      const about = { number, turn, source, name };
      expectEqual({ ...about, word }, { ...about, word: verdictWord(rank, verdict, audited) });
      if (typeof source === 'bigint') counts[verdictOf(word) === 'allow' ? 'allow' : 'deny']++;
    }
  }
  expect(Math.min(...Object.values(counts))).toBeGreaterThan(1_000);
});
