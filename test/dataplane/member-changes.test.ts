import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { MembershipChange } from '#contracts/kubernetes/membership.js';
import { FlowRenewal } from '#dataplane/flows/flow-renewal.js';
import { CHANGES, MEMBER_LINE, memberLines } from '#dataplane/members/member-layout.js';
import { familyObjectsOf } from '#dataplane/object/loaded-object.js';
import { MemberChanges } from '#dataplane/thread/member-changes.js';
import { libc } from '#libc/libc.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { compile } from '#policy/compile/compile.js';
import { address, group, packet, policy, rule, selector } from '#test/policy/sample.js';
import { type Loaded, loadForTest } from './loaded.js';

const FAILED = 0xffff_ffff_ffff_ffffn;
const POD = address('10.0.0.1');
const web = selector('web');
const scope = { resolved: new Set([web.key]), podNetworks: [], networks: new Map() };
const none: MembershipChange = { added: [], addresses: [], sets: new Uint32Array(0), dropped: [] };
const list: MembershipChange = {
  ...none,
  added: [{ number: 1, keys: [web.key] }],
  addresses: [POD],
  sets: Uint32Array.of(1),
};
const removal = { ...none, addresses: [POD], sets: Uint32Array.of(0) };

let kernel: Loaded;
let flows: FlowRenewal;
let changes: MemberChanges;
beforeEach(() => {
  kernel = loadForTest();
  flows = new FlowRenewal(() => familyObjectsOf(kernel));
  changes = new MemberChanges(() => ({ ...kernel, hasFormerPrograms: false }), flows);
  kernel.members.replace(list);
  kernel.activate(compile(policy([group([], [rule()], { selectors: [web] })]), { membership: { scope, list } }));
  kernel.runPacket(packet({ source: '10.0.0.1' }));
});
afterEach(() => {
  vi.restoreAllMocks();
  flows.unmap();
  kernel.close();
});

describe('a change of members', () => {
  test('a change of Kubernetes members (addresses that selectors select) stores nothing if the flow table cannot be mapped into memory, and can be repeated', () => {
    vi.spyOn(libc, 'mmap').mockReturnValueOnce(FAILED);
    expect(() => changes.change(removal)).toThrow('map flows into memory');
    expect(kernel.members.count).toBe(1);
    expect(changes.replace(none)).toMatchObject({ members: 0, flows: 1 });
  });

  test('a change of Kubernetes members (addresses that selectors select) is stored and counted before the flows of the changed addresses are searched', () => {
    const words = new MappedMemory(
      'members',
      kernel.object.mapFd('members'),
      memberLines('ipv4') * MEMBER_LINE.words * 4,
    );
    const changesBefore = words.words[CHANGES] ?? 0;
    const reclassify = vi.spyOn(flows, 'reclassify').mockImplementationOnce(() => {
      expect([kernel.members.count, words.words[CHANGES]]).toEqual([0, changesBefore + 2]);
      return 0;
    });
    changes.change(removal);
    expect(reclassify).toHaveBeenCalledOnce();
    words.unmap();
  });

  test('a change of Kubernetes members waits for an RCU grace period before it searches flows, while BPF programs of an earlier build may still run', () => {
    const syscall = vi.spyOn(libc, 'syscall');
    const former = new MemberChanges(() => ({ ...kernel, hasFormerPrograms: true }), flows);
    expect(former.change(removal)).toMatchObject({ flows: 1 });
    expect(syscall).toHaveBeenCalledOnce();
    changes.replace(list);
    expect(syscall).toHaveBeenCalledOnce();
  });

  test('a change of Kubernetes members (addresses that selectors select) fails if it cannot reclassify the flows, and the next list of members reclassifies them', () => {
    vi.spyOn(flows, 'reclassify').mockImplementationOnce(() => {
      throw new Error('no flow table');
    });
    expect(() => changes.change(removal)).toThrow('no flow table');
    expect(changes.replace(none)).toMatchObject({ members: 0, flows: 1 });
    expect(changes.replace(none)).toMatchObject({ flows: 0 });
  });

  test('an empty list of Kubernetes members does not map the flow table into memory', () => {
    changes.change(removal);
    flows.unmap();
    const mmap = vi.spyOn(libc, 'mmap');
    changes.replace(none);
    expect(mmap).not.toHaveBeenCalled();
  });
});
