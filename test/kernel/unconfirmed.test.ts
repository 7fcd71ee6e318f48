import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { LAYOUT_VERSION } from '#contracts/datapath/datapath-numbers.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { Standing } from '#contracts/datapath/unconfirmed.js';
import type { SelectorSet } from '#contracts/kubernetes/membership.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { type Deadline, RevertTimer } from '#dataplane/activate/revert-timer.js';
import { ACTIVE } from '#dataplane/activate/slots.js';
import { loadPrograms } from '#dataplane/object/loaded-object.js';
import { mapSetsIn } from '#dataplane/object/map-set.js';
import type { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { compile } from '#policy/compile/compile.js';
import { samplesOf } from '#policy/proof/proof-sample.js';
import { objectOptions } from '#test/dataplane/loaded.js';
import { address, group, policy, rule, selector } from '#test/policy/sample.js';
import { DatapathNode } from './datapath-node.js';
import { claimOtherLayout } from './variants.js';

const PORTS = [80, 81, 82] as const;
/** The tests bring this deadline forward, see `elapse`. */
const WITHIN_MS = 600_000;
const DRY_RUN: Standing = { isStored: false, unconfirmed: null };

let node: DatapathNode;
beforeEach(async () => {
  node = await DatapathNode.create('unc');
  await node.serve(...PORTS);
});
afterEach(async () => {
  node.detach();
  await node.remove();
});

const allowing = (...ports: readonly number[]): Policy =>
  policy([group(['0.0.0.0/0'], [rule({ id: 'web', protocol: 17, ports: ports.map(String) })])]);

/** Returns the ports of the server, of `PORTS`, that reply to a datagram of the client. */
async function open(): Promise<number[]> {
  const lines = await Promise.all(PORTS.map((port) => node.ask('client', 'datagram', ADDRESSES.server, port, 300)));
  return PORTS.filter((_, at) => lines[at]?.[0]?.startsWith('pong') === true);
}

/** A policy of generation 2, which the kernel reverts to the policy of generation 1 after `withinMs`. */
const unconfirmed = (withinMs: number = WITHIN_MS, before = 1, reverts = 3): Standing => ({
  isStored: true,
  unconfirmed: { before, reverts, atNs: process.hrtime.bigint() + BigInt(withinMs) * 1_000_000n },
});

function put(compiled: Program, generation: number, standing?: Standing): void {
  node.datapath.stage(compiled, generation, standing?.unconfirmed == null ? standing : DRY_RUN);
  node.datapath.flip(standing);
}

function start(more: Partial<DatapathOptions> = {}): LocalDatapath {
  const datapath = node.open({ programCapacity: 65_536, ...more });
  return datapath;
}

/**
 * Ends the datapath of this process, as if the process had died. The programs and maps stay in the kernel.
 */
const die = (): void => node.datapath.close();

function startPending(standing = unconfirmed()): void {
  start();
  put(compile(allowing(80)), 1);
  put(compile(allowing(81)), 2, standing);
}

/** Returns the deadline in the kernel; null if there is none. */
function deadline(): Deadline | null {
  const set = mapSetsIn(node.topology.pinPath).at(-1);
  const found = set?.deadline() ?? null;
  set?.close();
  return found;
}

/** Sets the deadline in the kernel to now, if there is one, and waits until its timer has run. */
async function elapse(): Promise<void> {
  const set = mapSetsIn(node.topology.pinPath).at(-1);
  const found = set?.deadline();
  if (set === undefined || found == null) return;
  const maps = new Map((['active', 'revert'] as const).map((name) => [name, set.fd(name)]));
  const object = loadPrograms(objectOptions(), maps, ['weir_set_revert']);
  new RevertTimer({ map: object.mapFd('revert'), program: object.programFd('weir_set_revert') }).set(1n, found.slot);
  object.close();
  set.close();
  await pause(50);
}

describe('the datapath without a process', () => {
  test('reverts an unconfirmed policy to the earlier policy at the deadline, with a new generation', async () => {
    startPending();
    expect(await open()).toEqual([81]);
    die();
    expect(await open()).toEqual([81]);
    await elapse();
    expect(await open()).toEqual([80]);
    expect(start().stats().generation).toBe(3);
    expect(node.adoption).toMatchObject({ inForce: { generation: 3 }, base: { generation: 3, hasReverted: true } });
  });

  test('reverts an unconfirmed policy also without traffic, at most 100 ms after the deadline', async () => {
    start();
    const [before, after] = [compile(allowing(80)), compile(allowing(81))];
    put(before, 1);
    const standing = unconfirmed(1_500);
    put(after, 2, standing);
    die();
    await pause(2_000);
    const { atNs = 0n, revertedNs } = deadline() ?? {};
    expect(atNs).toBe(standing.unconfirmed?.atNs);
    expect(Number((revertedNs ?? 0n) - atNs) / 1e6).toBeGreaterThanOrEqual(0);
    expect(Number((revertedNs ?? 0n) - atNs) / 1e6).toBeLessThan(100);
  });

  test('classifies the open flows of the unconfirmed policy again', async () => {
    startPending();
    const flow = node.topology.client.start(process.execPath, [
      program('tour-traffic'),
      ...['connect-udp', ADDRESSES.server, '81', '--every', '50', '--timeout', '200'],
    ]);
    const lines: string[] = [];
    flow.stdout?.setEncoding('utf8').on('data', (text: string) => lines.push(...text.trim().split('\n')));
    await expect.poll(() => lines.at(-1), { timeout: 10_000 }).toMatch(/^pong/);
    die();
    await elapse();
    const from = lines.length;
    await pause(500);
    flow.kill('SIGKILL');
    expect(lines.slice(from).filter((line) => line.startsWith('pong'))).toEqual([]);
  });

  test('keeps a policy in force that was confirmed before the process died', async () => {
    startPending();
    node.datapath.confirm(3);
    die();
    await elapse();
    expect(await open()).toEqual([81]);
  });

  test('keeps a policy in force that a later write activated', async () => {
    startPending();
    put(compile(allowing(82)), 4);
    die();
    await elapse();
    expect(await open()).toEqual([82]);
  });

  test('reverts after two unconfirmed writes to the last confirmed policy, at the later deadline', async () => {
    startPending();
    const later = unconfirmed(2 * WITHIN_MS, 1, 5);
    put(compile(allowing(82)), 4, later);
    die();
    expect(deadline()?.atNs).toBe(later.unconfirmed?.atNs);
    expect(await open()).toEqual([82]);
    await elapse();
    expect(await open()).toEqual([80]);
    expect(start().stats().generation).toBe(5);
  });

  test('applies the learned DNS addresses and the Kubernetes members to the restored policy, also members that were added meanwhile', async () => {
    const web: SelectorSet = { number: 1, keys: [selector('web').key] };
    const named = rule({
      id: 'name',
      protocol: 17,
      hostname: { kind: 'exact', labels: ['a', 'test'], text: 'a.test' },
      ports: ['80'],
    });
    const before = policy([
      group([], [rule({ id: 'pods', protocol: 17, ports: ['82'] })], { id: 'pods', selectors: [selector('web')] }),
      group(['0.0.0.0/0'], [named], { id: 'names' }),
    ]);
    const scope = { resolved: new Set(web.keys), podNetworks: [], networks: new Map() };
    const noMembers = { added: [], addresses: [], sets: Uint32Array.of(), dropped: [] };
    start();
    node.datapath.memberChanges.replace(noMembers);
    const other = { added: [web], addresses: [1], sets: Uint32Array.of(1), dropped: [] };
    put(compile(before, { membership: { scope, list: other } }), 1);
    const expiresAtNs = process.hrtime.bigint() + 600_000_000_000n;
    node.datapath.grant([{ pattern: 'a.test', addresses: [address(ADDRESSES.server)], expiresAtNs }]);
    put(compile(allowing(81)), 2, unconfirmed());
    // The grants are swept, and the client becomes a member, while only the base has the pattern and the set.
    node.datapath.sweepGrants();
    node.datapath.memberChanges.change({ ...other, addresses: [address(ADDRESSES.client)] });
    // Other policies are staged meanwhile, so that each idle slot is used.
    for (const ports of [[82], [80, 82], []]) node.datapath.stage(compile(allowing(...ports)), 9, DRY_RUN);
    expect(await open()).toEqual([81]);
    die();
    await elapse();
    expect(await open()).toEqual([80, 82]);
  });

  test('counts the packets of each policy as hits of its own rules', async () => {
    const named = (id: string, port: number) =>
      policy([group(['0.0.0.0/0'], [rule({ id, protocol: 17, ports: [String(port)] })])]);
    start();
    put(compile(named('first', 80)), 1);
    put(compile(named('second', 81)), 2, unconfirmed());
    expect(await open()).toEqual([81]);
    die();
    await elapse();
    expect(await open()).toEqual([80]);
    start();
    put(compile(policy([group(['0.0.0.0/0'], [rule({ id: 'first' }), rule({ id: 'second' })])])), 4);
    const report = node.datapath.hits({ from: 0, limit: 10, groups: [], rules: [], unused: undefined });
    const packets = report?.items.flatMap(({ decider, packets: count }) =>
      'rule' in decider && decider.rule !== null ? [[decider.rule, Number(count)]] : [],
    );
    expect(Object.fromEntries(packets ?? [])).toEqual({ first: 2, second: 2 });
  });
});

describe('while a policy is unconfirmed', () => {
  test('a dry run writes and tests its policy in a third program slot, and changes neither the policy in force nor the last confirmed one', async () => {
    startPending();
    for (let round = 0; round < 3; round++) {
      const other = allowing(82);
      node.datapath.stage(compile(other), 9, DRY_RUN);
      expect(node.datapath.prove(samplesOf(other))).toMatchObject({ complete: true });
      node.datapath.unstage();
    }
    expect(await open()).toEqual([81]);
    await elapse();
    expect(await open()).toEqual([80]);
  });

  test('a new compilation of the same policy after a change of Kubernetes members keeps the last confirmed policy and the deadline', async () => {
    const standing = unconfirmed();
    startPending(standing);
    for (const ports of [[81, 82], [81], [81, 82]]) {
      node.datapath.stage(compile(allowing(...ports)), 2, standing);
      node.datapath.flip(standing);
      expect(await open()).toEqual(ports);
    }
    await elapse();
    expect(await open()).toEqual([80]);
  });

  test('a restart of the process keeps the last confirmed policy in the kernel, and the deadline stays the same', async () => {
    const standing = unconfirmed();
    startPending(standing);
    for (let round = 0; round < 2; round++) {
      die();
      start();
      node.datapath.stage(compile(allowing(81)), 2, standing);
      node.datapath.flip(standing);
    }
    expect(await open()).toEqual([81]);
    expect(node.adoption.base).toEqual({ generation: 3, atNs: standing.unconfirmed?.atNs, hasReverted: false });
    expect(deadline()?.atNs).toBe(standing.unconfirmed?.atNs);
    await elapse();
    expect(await open()).toEqual([80]);
  });

  test.each([
    ['a flow table of another size', { flowCapacity: 2_048 }],
    ['other time-outs', { pickupMs: 1 }],
  ])(
    'a restart with %s keeps the last confirmed policy in the kernel, and the deadline stays the same',
    async (_, more) => {
      const standing = unconfirmed();
      startPending(standing);
      die();
      start(more);
      expect(node.adoption.base).toMatchObject({ generation: 3, hasReverted: false });
      expect(await open()).toEqual([81]);
      die();
      expect(deadline()?.atNs).toBe(standing.unconfirmed?.atNs);
      await elapse();
      expect(await open()).toEqual([80]);
    },
  );

  test('if the process reverts the policy, the last confirmed policy is in force at once, and the kernel counts the revert as done', async () => {
    startPending();
    node.datapath.stage(compile(allowing(80, 82)), 3);
    expect(await open()).toEqual([80]);
    expect(node.datapath.stats().generation).toBe(3);
    node.datapath.flip();
    expect(await open()).toEqual([80, 82]);
    await elapse();
    expect(await open()).toEqual([80, 82]);
  });
});

describe('an unconfirmed policy is refused', () => {
  test('if the kernel has already reverted it, also when the policy is activated', async () => {
    const standing = unconfirmed();
    startPending(standing);
    node.datapath.stage(compile(allowing(81, 82)), 2, standing);
    await elapse();
    expect(() => node.datapath.flip(standing)).toThrow('has reverted the unconfirmed policy');
    expect(() => node.datapath.stage(compile(allowing(81)), 2, standing)).toThrow(
      'has reverted the unconfirmed policy',
    );
    expect(await open()).toEqual([80]);
  });

  test('if its deadline has passed', () => {
    start();
    put(compile(allowing(80)), 1);
    expect(() => node.datapath.stage(compile(allowing(81)), 2, unconfirmed(-1))).toThrow(
      'the deadline for the confirmation',
    );
  });

  test('if another build takes over that cannot keep the last confirmed policy, because the policy tables in the kernel are new', async () => {
    startPending();
    die();
    claimOtherLayout(node.topology.pinPath);
    start();
    expect(node.adoption).toMatchObject({ inForce: { generation: 2 }, base: null });
    expect(() => node.datapath.stage(compile(allowing(81)), 2, unconfirmed())).toThrow(
      'the kernel no longer has the earlier policy',
    );
    expect(await open()).toEqual([81]);
    put(compile(allowing(80)), 3);
    expect(await open()).toEqual([80]);
  });

  test('by an earlier build, which does not use the BPF maps until the change ends, because it does not know their layout version', () => {
    const layoutVersion = (): number | undefined => {
      const set = mapSetsIn(node.topology.pinPath).at(-1);
      const value = new Uint8Array(ACTIVE.bytes);
      libbpf().bpf_map_lookup_elem(set?.fd('active') ?? -1, new Uint8Array(4), value);
      set?.close();
      return new Uint32Array(value.buffer)[ACTIVE.layoutVersion];
    };
    startPending();
    expect(layoutVersion()).not.toBe(LAYOUT_VERSION);
    node.datapath.stage(compile(allowing(82)), 2, unconfirmed());
    node.datapath.flip(unconfirmed());
    expect(layoutVersion()).not.toBe(LAYOUT_VERSION);
    node.datapath.confirm(3);
    expect(layoutVersion()).toBe(LAYOUT_VERSION);
    put(compile(allowing(82)), 5, unconfirmed(WITHIN_MS, 2, 6));
    put(compile(allowing(80)), 7);
    expect(layoutVersion()).toBe(LAYOUT_VERSION);
  });

  test('if no program slot contains the last confirmed policy, for example after a restart of the machine', () => {
    start();
    expect(() => node.datapath.stage(compile(allowing(81)), 2, unconfirmed())).toThrow(
      'the kernel no longer has the earlier policy',
    );
    put(compile(allowing(80)), 7);
    expect(() => node.datapath.stage(compile(allowing(81)), 2, unconfirmed())).toThrow(
      'the kernel no longer has the earlier policy',
    );
  });
});
