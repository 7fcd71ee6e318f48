import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { memoryAddressAt } from '#addresses/memory-words.js';
import type { ListedMembership, MembershipChange, SelectorSet } from '#contracts/kubernetes/membership.js';
import type { Address, Family, Packet } from '#contracts/policy/policy-model.js';
import { FlowRenewal } from '#dataplane/flows/flow-renewal.js';
import { homeOf } from '#dataplane/grants/address-hash.js';
import { mapMembers } from '#dataplane/members/mapped-members.js';
import { MEMBER_LAYOUTS, MEMBER_LINE, memberLines } from '#dataplane/members/member-layout.js';
import { MemberTable } from '#dataplane/members/member-table.js';
import { familyObjectsOf } from '#dataplane/object/loaded-object.js';
import { compile } from '#policy/compile/compile.js';
import { classify } from '#policy/evaluate/classify.js';
import { MemberIndex } from '#policy/model/sources/member-index.js';
import { generateMembership, generatePolicy, ipv6PacketGenerator } from '#test/policy/generate.js';
import { address, group, packet, policy, rule, selector } from '#test/policy/sample.js';
import { Random, seedOf } from '#test/seed.js';
import { back } from './conversation.js';
import { TCP } from './frame.js';
import { DROPPED, type Loaded, loadForTest, PASSED } from './loaded.js';

const seed = seedOf(20_261_201);
const BOTH: readonly Family[] = ['ipv4', 'ipv6'];
const POD = 0xfd00_0010_0244_0001_0000_0000_0000_0005n;
const POD_IPV4 = address('10.0.0.1');
const WEB: SelectorSet = { number: 1, keys: [selector('web').key] };
const DB: SelectorSet = { number: 2, keys: [selector('db').key] };

const pods = policy([
  group([], [rule({ id: 'https', ports: ['443'], protocol: 6 })], { id: 'web', selectors: [selector('web')] }),
  group([], [rule({ id: 'sql', ports: ['5432'], protocol: 6 })], { id: 'db', selectors: [selector('db')] }),
]);
const scope = {
  resolved: new Set([...WEB.keys, ...DB.keys]),
  podNetworks: [{ address: (POD >> 80n) << 80n, length: 48 }],
  networks: new Map(),
};

function change(
  members: readonly (readonly [Address, number])[],
  added: readonly SelectorSet[] = [],
): MembershipChange {
  return {
    added,
    addresses: members.map(([member]) => member),
    sets: Uint32Array.from(members, ([, set]) => set),
    dropped: [],
  };
}
const list = change(
  [
    [POD, WEB.number],
    [POD + 1n, DB.number],
    [POD_IPV4, DB.number],
  ],
  [WEB, DB],
);
const https: Packet<bigint> = { ...packet(), source: POD, destination: 0x2001_0db8n << 96n };
const sql = { ...https, destinationPort: 5432 };

let kernel: Loaded<'ipv6'>;
beforeEach(() => {
  kernel = loadForTest({ family: 'ipv6' });
});
afterEach(() => kernel.close());

function passes(tried: Packet<bigint>): boolean {
  kernel.flushFlows();
  return kernel.runPacket(tried).returned === PASSED;
}
function activate(given: ListedMembership['list']): void {
  kernel.activate(compile(pods, { ipv6: true, membership: { scope, list: given } }));
}

describe('members of IPv6 in the kernel', () => {
  test('the datapath gives random IPv6 packets of Kubernetes members the verdict of the compiled policy while the members of both families change', () => {
    let denyOnly = 0;
    let owned = 0;
    kernel.members.replace(change([]));
    for (let number = 0; number < 25; number++) {
      const random = new Random(seed + number);
      const shape = { groups: 8, rules: 5, selectors: 0.6, tls: false, hostnames: false, families: BOTH };
      const judged = generatePolicy(random, shape);
      const given = generateMembership(random, judged, BOTH);
      const program = compile(judged, { ipv6: true, membership: given });
      const index = program.members === null ? null : new MemberIndex(program.members, program.ipv6);
      const next = ipv6PacketGenerator(random, judged, given.scope.podNetworks);
      const sets = new Map(given.list.added.map((set) => [set.number, set]));
      // The compiled policy lacks the set of groups of this set of selectors.
      const unseen: SelectorSet = { number: 50, keys: [...WEB.keys, ...DB.keys, 'other'] };
      sets.set(unseen.number, unseen);
      const owners = new Map<bigint, number>();
      kernel.members.replace(change([], [...sets.values()]));
      kernel.activate(program);
      for (let turn = 0; turn < 120; turn++) {
        const tried = next();
        // No member has the unspecified address.
        if (tried.source === 0n) continue;
        if (random.chance(0.7)) {
          const owner = random.pick([0, ...sets.keys()]);
          kernel.members.change(
            change([
              [tried.source, owner],
              [random.word(), random.pick([...sets.keys()])],
            ]),
          );
          owners.set(tried.source, owner);
        }
        const set = sets.get(owners.get(tried.source) ?? 0);
        const row = set === undefined ? undefined : index?.indexOf(set);
        kernel.forgetFlows();
        const { word } = kernel.runPacket(tried);
        if (word === 0) continue;
        const about = { number, turn, tried, row };
        expect({ ...about, word }).toEqual({ ...about, word: classify(program, tried, undefined, row) });
        denyOnly += row === 0 ? 1 : 0;
        owned += row !== undefined && row > 1 ? 1 : 0;
      }
    }
    expect(denyOnly).toBeGreaterThan(20);
    expect(owned).toBeGreaterThan(200);
  });

  test('a packet of an IPv6 pod passes by the group of its selectors, until the pod is removed or has other labels', () => {
    activate(list);
    expect(passes(https)).toBe(false);
    kernel.members.replace(list);
    expect([passes(https), passes(sql), kernel.members.count]).toEqual([true, false, 3]);
    kernel.members.change(change([[POD, DB.number]]));
    expect([passes(https), passes(sql)]).toEqual([false, true]);
    kernel.members.change(change([[POD, 0]]));
    expect([passes(https), passes(sql), kernel.members.count]).toEqual([false, false, 2]);
    expect(passes({ ...sql, source: POD + 1n })).toBe(true);
    expect(kernel.members.uncompiledIn(kernel.slots.slotInForce ?? 0)).toBe(0);
  });

  test('IPv6 members keep their rights after a restart of the process, until the first list omits them', () => {
    activate(list);
    kernel.members.replace(list);
    const other = mapMembers(familyObjectsOf(kernel), kernel.slots.count);
    expect([passes(https), other.members.count]).toEqual([true, 3]);
    other.members.replace(change([[POD + 1n, 9]], [{ number: 9, keys: DB.keys }]));
    expect([passes(https), passes({ ...sql, source: POD + 1n }), other.members.count]).toEqual([false, true, 1]);
    other.members.removeLeaving();
    expect(passes({ ...sql, source: POD + 1n })).toBe(true);
    other.unmap();
  });

  test('a change of members classifies again the IPv6 flows that the changed address opened, and no other flow', () => {
    activate(list);
    kernel.members.replace(list);
    const renewal = new FlowRenewal(() => familyObjectsOf(kernel));
    const renew = (given: MembershipChange): number => renewal.reclassify(kernel.members.change(given));
    kernel.flushFlows();
    kernel.runPacket(https);
    kernel.runPacket(back(https), { tcpFlags: TCP.syn | TCP.ack });
    expect(kernel.runPacket(https, { tcpFlags: TCP.ack }).returned).toBe(PASSED);
    // The lowest 32 bits of this address are those of the pod.
    expect(renew(change([[POD + (1n << 64n), DB.number]]))).toBe(0);
    expect(renew(change([[Number(POD & 0xffff_ffffn), DB.number]]))).toBe(0);
    expect(kernel.runPacket(https, { tcpFlags: TCP.ack }).returned).toBe(PASSED);
    expect(renew(change([[POD, DB.number]]))).toBe(1);
    expect(kernel.runPacket(back(https), { tcpFlags: TCP.ack }).returned).toBe(DROPPED);
    renewal.unmap();
  });
});

test('the table of IPv6 members keeps a removed address in its place until a grace period has passed, also after a restart', () => {
  const { places, line } = MEMBER_LAYOUTS.ipv6;
  const words = new Uint32Array(new SharedArrayBuffer(memberLines('ipv6') * MEMBER_LINE.words * 4));
  const random = Uint32Array.from({ length: 10 }, (_, at) => Math.imul(at + 1, 0x9e37_79b9));
  let gracePeriods = 0;
  const open = () => new MemberTable('ipv6', words, random, () => gracePeriods++);
  const table = open();
  const home = homeOf(words, POD);
  const others: bigint[] = [];
  for (let one = POD + 1n; others.length < places; one++) if (homeOf(words, one) === home) others.push(one);
  const stored = () =>
    Array.from({ length: places }, (_, at) =>
      memoryAddressAt(words, home * MEMBER_LINE.words + line.addresses + at * line.addressStep, 'ipv6'),
    );
  const [first = 0n, second = 0n] = others;
  table.set(POD, 1);
  table.set(first, 1);
  table.set(POD, 0);
  table.set(second, 2);
  expect([stored(), gracePeriods]).toEqual([[POD, first], 0]);
  expect([POD, first, second].map((member) => table.mapIndexAt(member))).toEqual([0, 1, 2]);
  const next = open();
  expect([POD, first, second].map((member) => next.mapIndexAt(member))).toEqual([0, 1, 2]);
  expect([next.count, stored()]).toEqual([2, [POD, first]]);
  const crowd = Array.from({ length: 1_100 }, (_, at) => POD + (BigInt(at + 1) << 64n));
  for (const member of crowd) next.set(member, 3);
  for (const member of crowd) next.set(member, 0);
  expect(gracePeriods).toBe(0);
  next.set(crowd[0] ?? 0n, 3);
  expect([gracePeriods, stored()]).toEqual([1, [0n, first]]);
  next.set(POD, 4);
  expect([stored(), next.mapIndexAt(POD)]).toEqual([[POD, first], 4]);
});
