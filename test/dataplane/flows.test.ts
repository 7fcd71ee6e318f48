import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { compile } from '#policy/compile/compile.js';
import { allowAll, auditAll, denyAll } from '#test/kernel/policies.js';
import { back, CLIENT, echo, gre, onlyClient, onlyFrom, tcp, udp } from './conversation.js';
import { TCP } from './frame.js';
import { DROPPED, type Loaded, loadForTest, PASSED } from './loaded.js';

const opening = udp;

let kernel: Loaded;
beforeAll(() => {
  kernel = loadForTest({ flowCapacity: 4 });
});
afterAll(() => kernel.close());
beforeEach(() => {
  kernel.forget();
  kernel.activate(onlyClient);
});

const classify = (packet: Packet<number>, tcpFlags = 0, icmpId = 1): number =>
  kernel.runPacket(packet, { tcpFlags, icmpId }).returned;

describe('replies', () => {
  test.each([
    ['UDP', 'udp_replied', opening, 0, 0],
    ['TCP', 'tcp_established', tcp, TCP.syn, TCP.syn | TCP.ack],
    ['ICMP echo', 'icmp_replied', echo, 0, 0],
    ['a protocol without ports', 'other_replied', gre, 0, 0],
  ] as const)(
    'a reply passes if the first packet opened a flow (protocol: %s)',
    (_, state, packet, flags, replyFlags) => {
      expect(classify(back(packet), replyFlags)).toBe(DROPPED);
      expect(classify(packet, flags)).toBe(PASSED);
      expect(classify(back(packet), replyFlags)).toBe(PASSED);
      expect(classify(packet, TCP.ack)).toBe(PASSED);
      expect(kernel.flowIn('half_open')).toBeUndefined();
      expect(kernel.flowIn('flows')).toMatchObject({
        word: VERDICT_NUMBER.allow,
        packets: [2n, 1n],
        state,
        source: CLIENT,
        foreign: false,
      });
    },
  );
});

describe('ICMP', () => {
  test('an echo request from the destination of an echo flow does not belong to that flow, even with the same identifier', () => {
    expect(classify(echo)).toBe(PASSED);
    expect(classify({ ...back(echo), icmpType: 8 })).toBe(DROPPED);
  });

  test('an ICMP reply with another identifier, another type or a code other than 0 does not belong to the echo flow', () => {
    expect(classify(echo)).toBe(PASSED);
    expect(classify(back(echo), 0, 2)).toBe(DROPPED);
    expect(classify({ ...back(echo), icmpType: 14 })).toBe(DROPPED);
    expect(classify({ ...back(echo), icmpCode: 1 })).toBe(DROPPED);
  });

  test('ICMP errors and replies without a flow are classified by the policy and open no flow', () => {
    expect(classify({ ...echo, icmpType: 3 })).toBe(PASSED);
    expect(classify({ ...echo, icmpType: 0 })).toBe(PASSED);
    expect(kernel.counted()).toEqual({ allow: 2 });
  });
});

describe('change of the policy', () => {
  test('after a change of the policy, the next packet of a flow is classified again, with the source and destination of its first packet', () => {
    expect([classify(opening), classify(back(opening))]).toEqual([PASSED, PASSED]);
    const policy = onlyFrom(CLIENT);
    const epoch = kernel.activate(compile({ ...policy, default: { ...policy.default, mode: 'audit' } }));
    expect(classify(back(opening))).toBe(PASSED);
    expect(kernel.counted()).toEqual({ allow: 3, half_opened: 1, flows_opened: 1, flows_rejudged: 1 });
    expect(kernel.flowIn('flows')?.epoch).toBe(epoch);
  });

  test.each([
    ['ICMP', echo, 0],
    ['TCP', tcp, TCP.syn],
    ['UDP', opening, 0],
  ] as const)(
    'a flow of the protocol %s that a new policy denies ends with the next packet of either side',
    (_, packet, flags) => {
      expect(classify(packet, flags)).toBe(PASSED);
      kernel.activate(denyAll);
      expect(classify(back(packet), TCP.ack)).toBe(DROPPED);
      expect(kernel.counted()).toEqual({ allow: 1, half_opened: 1, drop_policy_deny: 1 });
      kernel.activate(allowAll);
      if (packet.protocol === IPPROTO.tcp) expect(classify(packet, TCP.ack)).toBe(DROPPED);
    },
  );

  test('a packet of an open flow passes and counts as audited if a new policy denies the flow in audit mode', () => {
    expect(classify(opening)).toBe(PASSED);
    kernel.activate(auditAll);
    expect(classify(opening)).toBe(PASSED);
    expect(kernel.counted()).toEqual({ allow: 1, audit: 1, half_opened: 1, flows_rejudged: 1 });
  });
});

test('a full flow table refuses and counts new flows, and keeps the established flows', () => {
  kernel.narrow(4);
  const opened = [1, 2, 3, 4, 5, 6].map((sourcePort) => {
    const asked = classify({ ...opening, sourcePort });
    return asked === PASSED ? classify(back({ ...opening, sourcePort })) : asked;
  });
  expect(opened).toEqual([PASSED, PASSED, PASSED, PASSED, DROPPED, DROPPED]);
  expect(classify(back({ ...opening, sourcePort: 1 }))).toBe(PASSED);
  expect(kernel.counted()).toEqual({ allow: 9, half_opened: 4, flows_opened: 4, drop_flow_table_full: 2 });
});
