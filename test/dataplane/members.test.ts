import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ListedMembership, MembershipChange, SelectorSet } from '#contracts/kubernetes/membership.js';
import { type Address, IPPROTO, type Packet, type Policy } from '#contracts/policy/policy-model.js';
import { FLOW_OFFSETS, RECLASSIFY } from '#dataplane/abi/flow.js';
import { FlowRenewal } from '#dataplane/flows/flow-renewal.js';
import { homeOf } from '#dataplane/grants/address-hash.js';
import { mapMembers } from '#dataplane/members/mapped-members.js';
import { MEMBER_LAYOUTS, MEMBER_LINE, memberLines } from '#dataplane/members/member-layout.js';
import { familyObjectsOf } from '#dataplane/object/loaded-object.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { compile } from '#policy/compile/compile.js';
import { classify } from '#policy/evaluate/classify.js';
import { MemberIndex } from '#policy/model/sources/member-index.js';
import { generateMembership, generatePolicy, packetGenerator } from '#test/policy/generate.js';
import { address, group, packet, policy, rule, selector } from '#test/policy/sample.js';
import { Random, seedOf } from '#test/seed.js';
import { back } from './conversation.js';
import type { CountingInput } from './counting-worker.js';
import { MORE_FRAGMENTS, TCP } from './frame.js';
import { DROPPED, type Loaded, loadForTest, PASSED } from './loaded.js';

const counting = new URL('../../dist/test/dataplane/counting-worker.js', import.meta.url);
const seed = seedOf(20_261_127);
const web = selector('web').key;
const db = selector('db').key;
const POD = address('10.0.0.1');

/** Pods of `web` may reach port 443, and pods of `db` port 5432. The group `quarantine` denies everything. */
const pods = policy([
  group([], [rule({ action: 'deny' })], { id: 'quarantine', selectors: [selector('quarantine')] }),
  group([], [rule({ id: 'https', ports: ['443'], protocol: 6 })], { id: 'web', selectors: [selector('web')] }),
  group([], [rule({ id: 'sql', ports: ['5432'], protocol: 6 })], { id: 'db', selectors: [selector('db')] }),
]);
const scope = {
  resolved: new Set([web, db, selector('quarantine').key]),
  podNetworks: [{ address: address('10.0.0.0'), length: 16 }],
  networks: new Map(),
};
const WEB: SelectorSet = { number: 1, keys: [web] };
const DB: SelectorSet = { number: 2, keys: [db] };
const BOTH: SelectorSet = { number: 3, keys: [web, db] };

function change(sets: readonly SelectorSet[], members: readonly (readonly [Address, number])[]): MembershipChange {
  return {
    added: sets,
    addresses: members.map(([member]) => member),
    sets: Uint32Array.from(members, ([, set]) => set),
    dropped: [],
  };
}

/** A list of members with the sets `WEB` and `DB`. */
const list = change(
  [WEB, DB],
  [
    [POD, 1],
    [POD + 1, 2],
  ],
);

let kernel: Loaded;
beforeEach(() => {
  kernel = loadForTest();
});
afterEach(() => kernel.close());

const https = packet({ source: '10.0.0.1' });
const sql = { ...https, destinationPort: 5432 };

/** Returns whether the first packet of a new flow passes. */
function passes(tried: Packet<number>): boolean {
  kernel.flushFlows();
  return kernel.runPacket(tried).returned === PASSED;
}

function activate(given: ListedMembership['list'], judged = pods): void {
  kernel.activate(compile(judged, { membership: { scope, list: given } }));
}

describe('members in the kernel', () => {
  test('deny rules with selectors match an address that a new list of Kubernetes members omits, until the next policy is in force', () => {
    const outside = address('192.0.2.1');
    const suspect = packet({ source: '192.0.2.1' });
    const free = { ...suspect, destinationPort: 22 };
    const judged = policy(
      [group([], [rule({ action: 'deny' })], { id: 'quarantine', selectors: [selector('quarantine')] })],
      { action: 'allow', mode: 'enforce', from: 'default_policy' },
    );
    const quarantined = change([{ number: 1, keys: [selector('quarantine').key] }], [[outside, 1]]);
    kernel.members.replace(quarantined);
    activate(quarantined, judged);
    expect(passes(free)).toBe(false);
    const empty = change([], []);
    kernel.members.replace(empty);
    expect(kernel.members.uncompiled(empty, kernel.slots.slotInForce ?? 0)).toBe(1);
    // The list lacks the address, so it is no member. It stays deny-only until the next program.
    expect([passes(free), kernel.members.count]).toEqual([false, 0]);
    activate(empty, judged);
    expect([passes(free), kernel.members.count]).toEqual([true, 0]);
  });

  test('the datapath gives random packets of Kubernetes members the verdict of the compiled policy while the members change', () => {
    let denyOnly = 0;
    let owned = 0;
    kernel.members.replace(change([], []));
    for (let number = 0; number < 25; number++) {
      const random = new Random(seed + number);
      const judged = generatePolicy(random, { groups: 8, rules: 5, selectors: 0.6, tls: false, hostnames: false });
      const given = generateMembership(random, judged);
      const program = compile(judged, { membership: given });
      const index = program.members === null ? null : new MemberIndex(program.members);
      const next = packetGenerator(random, judged, given.scope.podNetworks);
      const sets = new Map(given.list.added.map((set) => [set.number, set]));
      const unseen: SelectorSet = { number: 50, keys: [web, db, 'other'].filter(() => random.chance(0.6)) };
      sets.set(unseen.number, unseen);
      const owners = new Map<number, number>();
      kernel.members.replace({ ...change([], []), added: [...sets.values()] });
      kernel.activate(program);
      for (let turn = 0; turn < 120; turn++) {
        const tried = next();
        const numbers = [0, unseen.number, ...given.list.added.map((set) => set.number)];
        if (random.chance(0.7)) {
          const owner = random.pick(numbers);
          kernel.members.change(change([], [[tried.source, owner]]));
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
    expect(owned).toBeGreaterThan(300);
  });

  test('until the first list of Kubernetes members is complete, all deny rules and no allow rules with selectors apply to every address', () => {
    activate(list);
    expect(passes(https)).toBe(false);
    kernel.members.change(list);
    expect(passes(https)).toBe(true);
    const quarantined = { ...https, source: address('192.0.2.7') };
    const open = policy([...pods.groups, group(['192.0.2.0/24'], [rule()])]);
    activate(list, open);
    expect(passes(quarantined)).toBe(false);
    kernel.members.replace(list);
    expect(passes(quarantined)).toBe(true);
  });

  test('a Kubernetes member whose set of source groups is not in the compiled policy matches no allow rule until a policy has that set', () => {
    activate(list);
    kernel.members.replace(list);
    const both = change([BOTH], [[POD, BOTH.number]]);
    kernel.members.change(both);
    const slot = kernel.slots.slotInForce ?? 0;
    expect([passes(https), passes(sql), kernel.members.uncompiled(both, slot)]).toEqual([false, false, 1]);
    activate(
      change(
        [BOTH, DB],
        [...both.addresses].map((one) => [one, BOTH.number] as const),
      ),
    );
    expect([passes(https), passes(sql)]).toEqual([true, true]);
    expect(kernel.members.uncompiled(both, kernel.slots.slotInForce ?? 0)).toBe(0);
  });

  test('a new Kubernetes member gets its rights at once if the compiled policy still has its set of source groups from a former member', () => {
    const none = change([WEB, DB], []);
    const former = change([], [[POD, DB.number]]);
    kernel.activate(compile(pods, { membership: { scope, list: none, former } }));
    kernel.members.replace(none);
    expect([passes(https), passes(sql)]).toEqual([false, false]);
    for (const [set, allowed] of [
      [WEB, [false, false, 1]],
      [DB, [false, true, 0]],
    ] as const) {
      const scaled = change([], [[POD + 1, set.number]]);
      kernel.members.change(scaled);
      const uncompiled = kernel.members.uncompiled(scaled, kernel.slots.slotInForce ?? 0);
      const source = POD + 1;
      expect([passes({ ...https, source }), passes({ ...sql, source }), uncompiled]).toEqual(allowed);
    }
  });

  test('Kubernetes members that change while a policy is prepared (staged) count as not compiled when that policy is put in force', () => {
    kernel.activate(compile(policy([])));
    kernel.members.replace(list);
    kernel.stage(compile(pods, { membership: { scope, list } }));
    // Without a program in force that has members, a change counts no address whose set the program lacks.
    const both = change([BOTH], [[POD, BOTH.number]]);
    kernel.members.change(both);
    expect(kernel.members.uncompiled(both, kernel.slots.slotInForce ?? 0)).toBe(0);
    expect(kernel.flip().uncompiled).toBe(1);
    expect([passes(https), passes({ ...sql, source: POD + 1 })]).toEqual([false, true]);
    kernel.stage(
      compile(pods, {
        membership: {
          scope,
          list: change(
            [BOTH, DB],
            [
              [POD, 3],
              [POD + 1, 2],
            ],
          ),
        },
      }),
    );
    expect(kernel.flip().uncompiled).toBe(0);
    expect(passes(https)).toBe(true);
  });

  test('Kubernetes members keep their rights after a restart of the process, until the first list or the next policy omits the members', () => {
    activate(list);
    kernel.members.replace(list);
    const other = mapMembers(familyObjectsOf(kernel), kernel.slots.count);
    const { members } = other;
    expect(members.count).toBe(2);
    expect(passes(https)).toBe(true);
    // The next process numbers the sets anew. It has named only the set `db` when it activates a program.
    members.change(change([{ number: 9, keys: [db] }], [[POD + 1, 9]]));
    const idle = kernel.slots.idleSlot;
    kernel.stage(compile(pods, { membership: { scope, list } }));
    members.fill(idle, compile(pods, { membership: { scope, list } }));
    kernel.flip();
    expect([passes(https), passes({ ...sql, source: POD + 1 })]).toEqual([false, true]);
    members.replace(
      change(
        [
          { number: 9, keys: [db] },
          { number: 10, keys: [web] },
        ],
        [[POD, 10]],
      ),
    );
    expect([passes(https), passes({ ...sql, source: POD + 1 }), members.count]).toEqual([true, false, 1]);
    members.removeLeaving();
    expect([passes(https), members.count]).toEqual([true, 1]);
    other.unmap();
  });

  test('Kubernetes members without room in the table are counted, match no allow rule with selectors, and get their rights when there is room', () => {
    activate(list);
    kernel.members.replace(change([WEB, DB], []));
    const memory = new MappedMemory(
      'members',
      kernel.object.mapFd('members'),
      memberLines('ipv4') * MEMBER_LINE.words * 4,
    );
    const home = homeOf(memory.words, POD);
    const room = MEMBER_LAYOUTS.ipv4.places * MEMBER_LAYOUTS.ipv4.probes;
    const crowd: number[] = [];
    for (let one = 0x0b00_0000; crowd.length < room; one++) if (homeOf(memory.words, one) === home) crowd.push(one);
    memory.unmap();
    kernel.members.change(
      change(
        [],
        crowd.map((one) => [one, 2] as const),
      ),
    );
    kernel.members.change(change([], [[POD, 1]]));
    expect([passes(https), kernel.members.refused]).toEqual([false, 1]);
    expect(passes({ ...sql, source: crowd.at(-1) ?? 0 })).toBe(true);
    kernel.members.change(change([], [[crowd[3] ?? 0, 0]]));
    expect([passes(https), kernel.members.refused, kernel.members.count]).toEqual([true, 0, room]);
    kernel.members.change(
      change(
        [],
        [...crowd, POD].map((one) => [one, 0] as const),
      ),
    );
    expect([passes(https), kernel.members.count]).toEqual([false, 0]);
    const full = [...crowd, POD].map((one) => [one, 2] as const);
    kernel.members.change(change([], full));
    // The empty list removes the addresses in the table, and the address for which the table had no room.
    kernel.members.replace(change([], []));
    expect([kernel.members.refused, kernel.members.count]).toEqual([1, 0]);
  });
});

describe('a flow of an address whose members changed', () => {
  const established = (): void => {
    kernel.flushFlows();
    kernel.runPacket(https);
    kernel.runPacket(back(https), { tcpFlags: TCP.syn | TCP.ack });
    kernel.runPacket(https, { tcpFlags: TCP.ack });
  };
  const renew = (given: MembershipChange): number => {
    const changed = kernel.members.change(given);
    const renewal = new FlowRenewal(() => familyObjectsOf(kernel));
    const count = renewal.reclassify(changed);
    renewal.unmap();
    return count;
  };

  beforeEach(() => {
    activate(list);
    kernel.members.replace(list);
    kernel.forget();
  });

  test.each([
    ['of the opener', https],
    ['of the server', back(https)],
  ])(
    'a flow whose source address gets a new Kubernetes owner without the right ends with the next packet of either side (%s)',
    (_side, next) => {
      established();
      expect(kernel.runPacket(next, { tcpFlags: TCP.ack }).returned).toBe(PASSED);
      expect(renew(change([], [[POD, DB.number]]))).toBe(1);
      expect(kernel.runPacket(next, { tcpFlags: TCP.ack }).returned).toBe(DROPPED);
      expect(kernel.flowsIn('flows')).toEqual([]);
    },
  );

  test('a flow whose source address gets another Kubernetes owner with the same right continues, and counts all its packets for its rule', () => {
    established();
    expect(renew(change([], [[POD, 0]]))).toBe(1);
    expect(renew(change([], [[POD, WEB.number]]))).toBe(0);
    expect(kernel.flowIn('flows')?.epoch).toBe(kernel.epoch());
    expect(kernel.runPacket(https, { tcpFlags: TCP.ack }).returned).toBe(PASSED);
    kernel.sweep();
    expect(kernel.counted()).toMatchObject({ flows_rejudged: 1 });
    const query = { groups: [], rules: ['https'], unused: undefined, from: 0, limit: 10 };
    expect(kernel.trafficStatistics.hits(query)?.items.map(({ packets }) => packets)).toEqual([4n]);
  });

  test('later fragments of a datagram are dropped if the source address gets another Kubernetes owner after the first fragment passed', () => {
    const open = policy([group([], [rule({ id: 'udp', protocol: 17 })], { selectors: [selector('web')] })]);
    activate(list, open);
    const datagram = { ...https, protocol: 17 };
    const content = new Uint8Array(48);
    // Source port, destination port and length of the datagram, in network byte order.
    content.set([
      datagram.sourcePort >> 8,
      datagram.sourcePort & 255,
      datagram.destinationPort >> 8,
      datagram.destinationPort & 255,
      0,
      144,
    ]);
    const send = (at: number) =>
      kernel.runPacket(datagram, { id: 7, fragment: MORE_FRAGMENTS | (at / 8), content }).returned;
    expect([send(0), send(48)]).toEqual([PASSED, PASSED]);
    renew(change([], [[POD, 0]]));
    expect(send(96)).toBe(DROPPED);
  });

  test('a flow is classified again by its next packet if an earlier packet stored a verdict while the Kubernetes members changed', async () => {
    const udp = { ...https, protocol: IPPROTO.udp };
    const ping = { ...https, protocol: IPPROTO.icmp, icmpType: 8, icmpCode: 0 };
    const open = policy([group([], [rule({ id: 'all' })], { selectors: [selector('web')] })]);
    const isMarked = (): boolean =>
      kernel.records().some((record) => {
        const { buffer } = record;
        return (new DataView(buffer).getUint32(FLOW_OFFSETS.judgement + 4, true) & RECLASSIFY) !== 0;
      });
    // A rule with a hostname makes the full path decide: the fast path does not evaluate such rules.
    const hostname = { kind: 'exact', labels: ['a', 'test'], text: 'a.test' } as const;
    const named = policy([group([], [rule({ id: 'a', hostname }), rule()], { selectors: [selector('web')] })]);
    // How a packet stores a verdict: it opens a flow by the fast path, by the full path, or by the full path
    // with the rule list that the fast path found, or it belongs to a flow of an old epoch.
    const ways: readonly (readonly [string, Policy, () => void])[] = [
      ['fast path', open, () => kernel.runPacket(udp)],
      ['full path', open, () => kernel.runPacket(ping)],
      ['full path after the fast path', named, () => kernel.runPacket(udp)],
      [
        'renewal',
        open,
        () => {
          kernel.runPacket(udp);
          kernel.flowsIn('half_open');
          kernel.newEpoch();
          kernel.runPacket(udp);
        },
      ],
    ];
    /** Runs each entry of `ways`, in up to `tries` tries. Returns how many flows were marked. */
    const marked = (enough: number, tries: number) =>
      ways.map(([name, judged, run]): [string, number] => {
        activate(list, judged);
        let count = 0;
        for (let left = tries; left > 0 && count < enough; left--) {
          kernel.flushFlows();
          run();
          if (isMarked()) count += 1;
        }
        return [name, count];
      });
    expect(marked(1, 200)).toEqual(ways.map(([name]) => [name, 0]));
    const stop = new SharedArrayBuffer(4);
    const workerData: CountingInput = { membersFd: kernel.object.mapFd('members'), stop };
    const worker = new Worker(counting, { workerData, execArgv: [] });
    try {
      await once(worker, 'message');
      expect(marked(20, 100_000)).toEqual(ways.map(([name]) => [name, 20]));
    } finally {
      Atomics.store(new Int32Array(stop), 0, 1);
      await once(worker, 'exit');
    }
    kernel.forget();
    kernel.runPacket(udp);
    expect(isMarked()).toBe(false);
  });

  test('a change of Kubernetes members does not reclassify a flow of an address that did not change', () => {
    established();
    expect(renew(change([], [[POD + 1, 0]]))).toBe(0);
    kernel.runPacket(https, { tcpFlags: TCP.ack });
    expect(kernel.counted().flows_rejudged).toBeUndefined();
  });
});
