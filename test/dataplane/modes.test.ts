import { beforeEach, describe, expect, test } from 'vitest';
import type { Policy } from '#contracts/policy/policy-model.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { compile } from '#policy/compile/compile.js';
import { generatePolicy, packetGenerator } from '#test/policy/generate.js';
import { Random } from '#test/seed.js';
import { back, CLIENT, onlyClient, onlyFrom, STRANGER, tcp, udp } from './conversation.js';
import { MAX_FRAME, TCP, writeFrame } from './frame.js';
import { FRAME_SOURCES } from './fuzz/frame-sources.js';
import { makeSequence, type Step } from './fuzz/sequence.js';
import { kernelOfFile } from './kernel-of-file.js';
import { DROPPED, PASSED, type PacketResult } from './loaded.js';

const kernel = kernelOfFile(undefined, { denyEvents: 1_000_000, flowEvents: 1_000_000 });
beforeEach(() => {
  kernel.wantEvents(false);
});

/** `isWrongReset`: the frame was dropped because of the number of its RST. */
type Played = PacketResult & { readonly isWrongReset: boolean };

function play(steps: readonly Step[]): Played[] {
  kernel.forget();
  const wrongResets = () => kernel.counted().drop_tcp_sequence ?? 0;
  return steps.flatMap((step) => {
    if (step.kind !== 'frame') return [];
    kernel.frame.set(step.bytes);
    const before = wrongResets();
    const result = kernel.runFrame(step.bytes.length, step.mark, step.seen);
    return [{ ...result, isWrongReset: wrongResets() > before }];
  });
}

describe('verdicts for random frames', () => {
  const random = new Random(17);
  const policy = generatePolicy(random);
  const steps = makeSequence(random, FRAME_SOURCES.ipv4, packetGenerator(random, policy), 2_000);

  test('the verdicts for random frames are the same with and without sending events, even if no process reads the events', () => {
    kernel.activate(compile(policy));
    const quiet = play(steps);
    kernel.wantEvents(true);
    const loud = play(steps);
    expect(kernel.counted().events).toBeGreaterThan(100);
    expect(loud).toEqual(quiet);
  });

  test('in audit mode, no random frame is dropped by the policy, and as many invalid packets are dropped as in enforce mode', () => {
    const enforced: Policy = { ...onlyFrom(CLIENT), default: { action: 'deny', mode: 'enforce', from: 'fallback' } };
    const audited: Policy = { ...enforced, default: { ...enforced.default, mode: 'audit' } };
    kernel.activate(compile(enforced));
    const strict = play(steps);
    const dropped = kernel.counted();
    kernel.activate(compile(audited));
    const soft = play(steps);
    // In audit mode more frames open flows. A RST with a number that such a flow does not expect is dropped.
    const lost = soft.filter(
      ({ returned, isWrongReset }, index) =>
        strict[index]?.returned === PASSED && returned === DROPPED && !isWrongReset,
    );
    expect(lost).toEqual([]);
    const { drop_policy_deny = 0, drop_out_of_state: strays = 0, ...others } = dropped;
    expect(drop_policy_deny).toBeGreaterThan(100);
    expect(strays).toBeGreaterThan(10);
    const unruled = ['drop_malformed', 'drop_tcp_flags', 'drop_source_route', 'drop_icmp_redirect', 'drop_vlan_tagged'];
    const counted = kernel.counted();
    expect(unruled.map((name) => counted[name])).toEqual(unruled.map((name) => others[name]));
    expect(counted).not.toHaveProperty('drop_policy_deny');
  });
});

test('the datapath counts the events that a full ring buffer loses, and still drops denied packets and passes allowed packets', () => {
  kernel.activate(onlyClient);
  kernel.wantEvents(true);
  const frame = new Uint8Array(MAX_FRAME);
  const length = writeFrame(frame, { ...udp, source: STRANGER });
  const flood = new TestRun(kernel.object.programFd('weir_ingress'), frame, undefined, undefined);
  expect(flood.run(length, 200_000)).toBe(DROPPED);
  expect(kernel.runPacket(udp).returned).toBe(PASSED);
  const { events = 0, events_lost = 0, drop_policy_deny, ...others } = kernel.counted();
  expect({ drop_policy_deny, others }).toEqual({ drop_policy_deny: 200_000, others: { allow: 1, half_opened: 1 } });
  expect(events_lost).toBeGreaterThan(100_000);
  expect(events + events_lost).toBe(200_001);
});

describe('an open flow after a change of the policy', () => {
  const denied = compile(onlyFrom(STRANGER));

  test.each([
    ['UDP from a fixed port', udp, 0],
    ['an established connection', tcp, TCP.ack],
  ])(
    'an open flow admits no packet that a new policy denies, in 1,000 changes of the policy (flow: %s)',
    (_, packet, flags) => {
      kernel.activate(denied);
      kernel.slots.assumeGrace();
      kernel.activate(onlyClient);
      const open = (): number[] => [
        kernel.runPacket(packet, { tcpFlags: TCP.syn }).returned,
        kernel.runPacket(back(packet), { tcpFlags: TCP.syn | TCP.ack }).returned,
        kernel.runPacket(packet, { tcpFlags: TCP.ack }).returned,
      ];
      const wrong: number[] = [];
      for (let change = 0; change < 1_000; change++) {
        if (open().some((returned) => returned === DROPPED)) wrong.push(change);
        kernel.switchSlot();
        const after = [packet, back(packet)].map((either) => kernel.runPacket(either, { tcpFlags: flags }).returned);
        if (after.some((returned) => returned === PASSED)) wrong.push(change);
        kernel.switchSlot();
      }
      expect(wrong).toEqual([]);
    },
  );
});

test('every packet of a flow is counted once while two threads sweep the flow table', async () => {
  kernel.activate(onlyClient);
  kernel.runPacket(udp);
  kernel.runPacket(back(udp));
  const frame = new Uint8Array(MAX_FRAME);
  const length = writeFrame(frame, udp);
  const run = new TestRun(kernel.object.programFd('weir_ingress'), frame, undefined, undefined);
  const sweeps = [0, 1].map(() => new TestRun(kernel.object.programFd('weir_sweep'), undefined, undefined, undefined));
  const batch = 1_000_000;
  let done = false;
  const sweeping = sweeps.map(async (sweep) => {
    while (!done) await sweep.runBeside(0, 0);
  });
  await run.runBeside(length, batch);
  done = true;
  await Promise.all(sweeping);
  expect(kernel.flowIn('flows')).toMatchObject({ packets: [BigInt(batch + 1), 1n] });
  expect(kernel.counted()).toMatchObject({ allow: batch + 2 });
});
