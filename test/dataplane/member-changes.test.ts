import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { MembersChanged } from '#contracts/datapath.js';
import type { MembershipChange } from '#contracts/membership.js';
import { FlowRenewal } from '#dataplane/flows/flow-renewal.js';
import { MemberChanges } from '#dataplane/thread/member-changes.js';
import { libc } from '#libc/libc.js';
import { compile } from '#policy/compile/compile.js';
import { address, group, packet, policy, rule, selector } from '#test/policy/sample.js';
import type { UrgentReply } from '#threads/worker-server.js';
import { type Loaded, loadForTest } from './loaded.js';

const FAILED = 0xffff_ffff_ffff_ffffn;
const POD = address('10.0.0.1');
const web = selector('web');
const scope = { resolved: new Set([web.key]), closed: [], networks: new Map() };
const none: MembershipChange = { added: [], addresses: new Uint32Array(0), sets: new Uint32Array(0), dropped: [] };
const list: MembershipChange = {
  ...none,
  added: [{ number: 1, keys: [web.key] }],
  addresses: Uint32Array.of(POD),
  sets: Uint32Array.of(1),
};
const removal = { ...none, addresses: Uint32Array.of(POD), sets: Uint32Array.of(0) };

let kernel: Loaded;
let flows: FlowRenewal;
let changes: MemberChanges;
beforeEach(() => {
  kernel = loadForTest();
  flows = new FlowRenewal(() => kernel.object);
  changes = new MemberChanges(() => kernel, flows);
  kernel.members.replace(list);
  kernel.activate(compile(policy([group([], [rule()], { selectors: [web] })]), { membership: { scope, list } }));
  kernel.runPacket(packet({ source: '10.0.0.1' }));
});
afterEach(() => {
  vi.restoreAllMocks();
  changes.close();
  flows.unmap();
  kernel.close();
});

/** Resolves with the reply to a change. Rejects if the change fails, like a request to the thread. */
function replyTo(call: (reply: UrgentReply<MembersChanged>) => void): Promise<MembersChanged> {
  return new Promise((done, failed) => call({ done, failed }));
}

describe('a change of members', () => {
  test('stores nothing if the flow table cannot be mapped, and can be repeated', async () => {
    vi.spyOn(libc, 'mmap').mockReturnValueOnce(FAILED);
    await expect(replyTo((reply) => changes.change(removal, reply))).rejects.toThrow('map flows into memory');
    expect(kernel.members.count).toBe(1);
    expect(await replyTo((reply) => changes.replace(none, reply))).toMatchObject({ members: 0, flows: 1 });
  });

  test.each([
    ['by itself', () => {}],
    ['during other work', () => changes.finishNow()],
  ])('fails if it cannot reclassify the flows %s, and the next list reclassifies them', async (_when, meanwhile) => {
    vi.spyOn(flows, 'reclassify').mockImplementationOnce(() => {
      throw new Error('no flow table');
    });
    const reply = replyTo((given) => changes.change(removal, given));
    expect(meanwhile).not.toThrow();
    await expect(reply).rejects.toThrow('no flow table');
    expect(await replyTo((given) => changes.replace(none, given))).toMatchObject({ members: 0, flows: 1 });
    expect(await replyTo((given) => changes.replace(none, given))).toMatchObject({ flows: 0 });
  });

  test('without members does not map the flow table', async () => {
    await replyTo((reply) => changes.change(removal, reply));
    flows.unmap();
    const mmap = vi.spyOn(libc, 'mmap');
    await replyTo((reply) => changes.replace(none, reply));
    expect(mmap).not.toHaveBeenCalled();
  });
});
