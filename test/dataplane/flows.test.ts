import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { compile } from '#policy/compile.js';
import { IPPROTO, type Packet, type Policy } from '#policy/model.js';
import { VERDICT_NUMBER } from '#policy/program.js';
import { allowAll, auditAll, defaultOnly, denyAll } from '#test/kernel/policies.js';
import { TCP } from './frame.js';
import { DROPPED, type Loaded, loadForTest, PASSED } from './loaded.js';

const CLIENT = 0x0a00_0001;
const SERVER = 0x0a00_0102;

const opening: Packet = {
  source: CLIENT,
  destination: SERVER,
  protocol: IPPROTO.udp,
  sourcePort: 40_000,
  destinationPort: 53,
  icmpType: 0,
  icmpCode: 0,
};
const tcp: Packet = { ...opening, protocol: IPPROTO.tcp, destinationPort: 443 };
const echo: Packet = { ...opening, protocol: IPPROTO.icmp, sourcePort: 0, destinationPort: 0, icmpType: 8 };

function back(packet: Packet): Packet {
  return {
    ...packet,
    source: packet.destination,
    destination: packet.source,
    sourcePort: packet.destinationPort,
    destinationPort: packet.sourcePort,
    icmpType: packet.icmpType === 8 ? 0 : packet.icmpType,
  };
}

/** Everything from the client is allowed, nothing from anybody else. */
const clientOnly: Policy = {
  ...defaultOnly('deny'),
  groups: [
    {
      id: 'client',
      pointer: '',
      mode: 'enforce',
      sources: [{ address: CLIENT, length: 32 }],
      dynamic: false,
      rules: [],
      defaultAction: 'allow',
    },
  ],
};

let kernel: Loaded;
beforeEach(() => {
  kernel = loadForTest({ flowCapacity: 4 });
  kernel.activate(compile(clientOnly));
});
afterEach(() => kernel.close());

const judge = (packet: Packet, tcpFlags = 0, icmpId = 1): number => kernel.judge(packet, { tcpFlags, icmpId }).returned;

describe('replies pass because their flow was opened', () => {
  test.each([
    ['UDP', 'udp_replied', opening, 0, 0],
    ['TCP', 'tcp_established', tcp, TCP.syn, TCP.syn | TCP.ack],
    ['ICMP echo', 'icmp_replied', echo, 0, 0],
    [
      'a protocol without ports',
      'other_replied',
      { ...opening, protocol: 47, sourcePort: 0, destinationPort: 0 },
      0,
      0,
    ],
  ] as const)('%s', (_, state, packet, flags, replyFlags) => {
    expect(judge(back(packet), replyFlags)).toBe(DROPPED);
    expect(judge(packet, flags)).toBe(PASSED);
    expect(judge(back(packet), replyFlags)).toBe(PASSED);
    expect(judge(packet, TCP.ack)).toBe(PASSED);
    expect(kernel.flowIn('half_open')).toBeUndefined();
    expect(kernel.flowIn('flows')).toMatchObject({
      epoch: 1,
      word: VERDICT_NUMBER.allow,
      packets: [2n, 1n],
      state,
      source: CLIENT,
      foreign: false,
    });
  });
});

describe('ICMP queries', () => {
  test('of the other side are flows of their own, also with the same id', () => {
    expect(judge(echo)).toBe(PASSED);
    expect(judge({ ...back(echo), icmpType: 8 })).toBe(DROPPED);
  });

  test('with another id, another type or a code have no part in a flow', () => {
    expect(judge(echo)).toBe(PASSED);
    expect(judge(back(echo), 0, 2)).toBe(DROPPED);
    expect(judge({ ...back(echo), icmpType: 14 })).toBe(DROPPED);
    expect(judge({ ...back(echo), icmpCode: 1 })).toBe(DROPPED);
  });

  test('errors and unasked replies are judged each by itself, and open nothing', () => {
    expect(judge({ ...echo, icmpType: 3 })).toBe(PASSED);
    expect(judge({ ...echo, icmpType: 0 })).toBe(PASSED);
    expect(kernel.counted()).toEqual({ allow: 2 });
  });
});

describe('after a policy change', () => {
  test('the next packet of a flow is judged again, the way the flow was opened', () => {
    expect([judge(opening), judge(back(opening))]).toEqual([PASSED, PASSED]);
    kernel.activate(compile({ ...clientOnly, default: { ...clientOnly.default, mode: 'audit' } }));
    expect(judge(back(opening))).toBe(PASSED);
    expect(kernel.counted()).toEqual({ allow: 3, half_opened: 1, flows_opened: 1, flows_rejudged: 1 });
    expect(kernel.flowIn('flows')?.epoch).toBe(2);
  });

  test.each([
    ['ICMP', echo, 0],
    ['TCP', tcp, TCP.syn],
    ['UDP', opening, 0],
  ] as const)('a %s flow that is denied now ends with its next packet, whoever sends it', (_, packet, flags) => {
    expect(judge(packet, flags)).toBe(PASSED);
    kernel.activate(denyAll);
    expect(judge(back(packet), TCP.ack)).toBe(DROPPED);
    expect(kernel.counted()).toEqual({ allow: 1, half_opened: 1, drop_policy_deny: 1 });
    kernel.activate(allowAll);
    if (packet.protocol === IPPROTO.tcp) expect(judge(packet, TCP.ack)).toBe(DROPPED);
  });

  test('a flow that is audited now passes and counts as audited', () => {
    expect(judge(opening)).toBe(PASSED);
    kernel.activate(auditAll);
    expect(judge(opening)).toBe(PASSED);
    expect(kernel.counted()).toEqual({ allow: 1, audit: 1, half_opened: 1, flows_rejudged: 1 });
  });
});

describe('a TCP flow', () => {
  const handshake = (): void => {
    const answers = [judge(tcp, TCP.syn), judge(back(tcp), TCP.syn | TCP.ack), judge(tcp, TCP.ack)];
    expect(answers).toEqual([PASSED, PASSED, PASSED]);
  };

  test.each([
    ['both sides have sent FIN', 'tcp_closing', [TCP.fin | TCP.ack, TCP.fin | TCP.ack]],
    ['one side has sent RST', 'tcp_reset', [TCP.rst]],
  ] as const)('closes when %s, and a SYN opens it anew', (_, state, flags) => {
    handshake();
    for (const [index, flag] of flags.entries()) judge(index === 0 ? tcp : back(tcp), flag);
    expect(kernel.flowIn('flows')?.state).toBe(state);
    expect(judge(back(tcp), TCP.ack)).toBe(PASSED);
    expect(judge(back(tcp), TCP.syn)).toBe(DROPPED);
    expect(judge(tcp, TCP.syn)).toBe(PASSED);
    expect(kernel.flowIn('flows')).toBeUndefined();
    expect(kernel.flowIn('half_open')).toMatchObject({ epoch: 1, packets: [1n, 0n], state: 'tcp_syn_sent' });
  });

  test('stays open when one side has sent FIN', () => {
    handshake();
    expect([judge(tcp, TCP.fin | TCP.ack), judge(back(tcp), TCP.ack)]).toEqual([PASSED, PASSED]);
    expect(kernel.flowIn('flows')?.state).toBe('tcp_half_closed');
  });
});

test('a full table refuses to establish new flows, counts them, and keeps the ones it has', () => {
  const opened = [1, 2, 3, 4, 5, 6].map((sourcePort) => {
    expect(judge({ ...opening, sourcePort })).toBe(PASSED);
    return judge(back({ ...opening, sourcePort }));
  });
  expect(opened).toEqual([PASSED, PASSED, PASSED, PASSED, DROPPED, DROPPED]);
  expect(judge(back({ ...opening, sourcePort: 1 }))).toBe(PASSED);
  expect(kernel.counted()).toEqual({ allow: 11, half_opened: 6, flows_opened: 4, drop_flow_table_full: 2 });
});

test('a flow in its closing time is swept by the kernel', { timeout: 30_000 }, async () => {
  judge(tcp, TCP.syn);
  judge(tcp, TCP.rst);
  await expect.poll(() => kernel.flowIn('half_open'), { timeout: 20_000, interval: 500 }).toBeUndefined();
  expect(kernel.counted()).toEqual({ allow: 2, half_opened: 1 });
});
