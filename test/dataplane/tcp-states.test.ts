import { beforeEach, describe, expect, test } from 'vitest';
import type { Family } from '#contracts/policy/policy-model.js';
import { defaultOnly } from '#test/kernel/policies.js';
import { back, CONVERSATIONS, compileForBoth, onlyFrom } from './conversation.js';
import { TCP } from './frame.js';
import { kernelOfFile } from './kernel-of-file.js';
import { DROPPED, type Entry, PASSED } from './loaded.js';

const { fin: FIN, syn: SYN, rst: RST, ack: ACK, psh: PSH } = TCP;

type Step = readonly ['client' | 'server', number];
const client = (flags: number): Step => ['client', flags];
const server = (flags: number): Step => ['server', flags];
const HANDSHAKE = [client(SYN), server(SYN | ACK), client(ACK)];
const BY_BOTH = [...HANDSHAKE, client(FIN | ACK), server(FIN | ACK), client(ACK)];

/**
 * Returns whether RFC 9293 allows these TCP flags: a SYN without FIN and RST, or a RST without FIN. Without
 * SYN and RST, the flags must contain ACK. PSH and URG are always valid.
 */
function isSent(flags: number): boolean {
  const [f, s, r, a] = [FIN, SYN, RST, ACK].map((flag) => (flags & flag) !== 0);
  if (s) return !f && !r;
  if (r) return !f;
  return a === true;
}

const [CLIENT_AT, SERVER_AT] = [0x1234_5678, 0x9abc_def0];
/** A packet with sequence number, acknowledgment number (0 by default) and payload (none by default). */
type Numbered = readonly [...Step, sequence: number, acknowledgment?: number, payloadBytes?: number];
const OPENING: readonly Numbered[] = [
  ['client', SYN, CLIENT_AT - 1],
  ['server', SYN | ACK, SERVER_AT - 1, CLIENT_AT],
  ['client', ACK, CLIENT_AT, SERVER_AT],
];

const allowAll = compileForBoth(defaultOnly('allow'));
const denyAll = compileForBoth(defaultOnly('deny'));
const auditAll = compileForBoth(defaultOnly('deny', 'audit'));

function stateTests<F extends Family>(family: F): void {
  const { client: CLIENT, server: SERVER, tcp } = CONVERSATIONS[family];
  const kernel = kernelOfFile(compileForBoth(onlyFrom(CLIENT)), { family });

  /** Sends the steps in order. Returns, for each packet, whether it passed. */
  function play(...steps: readonly Step[]): boolean[] {
    return steps.map(([side, tcpFlags]) => {
      const packet = side === 'client' ? tcp : back(tcp);
      return kernel.runPacket(packet, { tcpFlags, payloadBytes: 0 }).returned === PASSED;
    });
  }
  const flow = () => [...kernel.flowsIn('flows'), ...kernel.flowsIn('half_open')];
  const passAll = (steps: readonly Step[]): void => expect(play(...steps)).toEqual(steps.map(() => true));

  describe('the flow of a TCP connection', () => {
    test.each<[string, string, readonly Step[]]>([
      ['opens', 'tcp_syn_sent', [client(SYN)]],
      ['stays open for a repeated SYN', 'tcp_syn_sent', [client(SYN), client(SYN)]],
      ['gets a SYN ACK', 'tcp_syn_received', [client(SYN), server(SYN | ACK)]],
      ['gets a SYN ACK twice', 'tcp_syn_received', [client(SYN), server(SYN | ACK), client(SYN), server(SYN | ACK)]],
      ['is established after the handshake', 'tcp_established', HANDSHAKE],
      [
        'is established after data in the SYN',
        'tcp_established',
        [client(SYN | PSH), server(SYN | ACK), client(PSH | ACK)],
      ],
      [
        'is established after a simultaneous open',
        'tcp_established',
        [client(SYN), server(SYN), client(SYN | ACK), server(SYN | ACK), client(ACK)],
      ],
      [
        'stays established through keep-alives and window probes',
        'tcp_established',
        [...HANDSHAKE, server(ACK), client(ACK)],
      ],
      [
        'stays established after a late SYN or SYN ACK',
        'tcp_established',
        [...HANDSHAKE, client(SYN), server(SYN | ACK)],
      ],
      [
        'is half closed by the client',
        'tcp_half_closed',
        [...HANDSHAKE, client(FIN | ACK), server(ACK), server(PSH | ACK)],
      ],
      [
        'is half closed by the server',
        'tcp_half_closed',
        [...HANDSHAKE, server(FIN | ACK), client(ACK), client(PSH | ACK)],
      ],
      [
        'is half closed by a FIN with the last ACK',
        'tcp_half_closed',
        [client(SYN), server(SYN | ACK), client(FIN | ACK), server(ACK)],
      ],
      ['closes after a FIN of each side', 'tcp_closing', BY_BOTH],
      ['stays closed after a later reset', 'tcp_closing', [...BY_BOTH, client(RST)]],
      ['is reset by the client', 'tcp_reset', [...HANDSHAKE, client(RST)]],
      ['is reset by the server', 'tcp_reset', [...HANDSHAKE, server(RST | ACK)]],
      ['is refused', 'tcp_reset', [client(SYN), server(RST | ACK)]],
      [
        'is established again if the server continues after a reset in its name',
        'tcp_established',
        [...HANDSHAKE, server(RST), server(ACK)],
      ],
      [
        'is established again if the client continues after a reset in its name',
        'tcp_established',
        [...HANDSHAKE, client(RST), client(ACK)],
      ],
      ['stays reset if only the other side continues', 'tcp_reset', [...HANDSHAKE, server(RST), client(ACK)]],
      [
        'is half closed again after a forged reset',
        'tcp_half_closed',
        [...HANDSHAKE, client(FIN | ACK), server(ACK), server(RST), server(ACK)],
      ],
      [
        'is established after a forged refusal',
        'tcp_established',
        [client(SYN), server(RST | ACK), server(SYN | ACK), client(ACK)],
      ],
      [
        'is not established by packets of the client alone',
        'tcp_syn_sent',
        [client(SYN), client(ACK), client(PSH | ACK)],
      ],
      [
        'is not established before the ACK of the client',
        'tcp_syn_received',
        [client(SYN), server(SYN | ACK), server(ACK)],
      ],
    ])('the flow of a TCP connection %s, and then has the state %s', (_, state, steps) => {
      passAll(steps);
      expect(flow()).toMatchObject([{ state, source: CLIENT, foreign: false }]);
      const confirmed = kernel.flowsIn('flows').length === 1;
      expect(confirmed).toBe(steps.length >= 3 && !['tcp_syn_sent', 'tcp_syn_received'].includes(state));
    });

    test.each([
      ['closed', BY_BOTH],
      ['was reset', [...HANDSHAKE, server(RST)]],
      ['was refused', [client(SYN), server(RST | ACK)]],
    ])('the flow of a TCP connection is opened again by a SYN after the connection %s', (_, steps) => {
      passAll(steps);
      expect(play(client(SYN))).toEqual([true]);
      expect(flow()).toMatchObject([{ state: 'tcp_syn_sent', packets: [1n, 0n] }]);
      passAll(HANDSHAKE.slice(1));
      expect(flow()).toMatchObject([{ state: 'tcp_established', packets: [2n, 1n] }]);
    });

    test('the flow of a TCP connection passes the last ACKs of both sides after the connection has closed', () => {
      passAll([...BY_BOTH, client(ACK), server(ACK)]);
    });
  });

  describe('the server side of a TCP connection', () => {
    test.each([
      ['is established', HANDSHAKE],
      ['is half closed', [...HANDSHAKE, server(FIN | ACK), client(ACK)]],
      ['has closed', BY_BOTH],
      ['was reset', [...HANDSHAKE, server(RST)]],
    ])('a server cannot open a connection on the same ports if the connection of the client %s', (_, steps) => {
      passAll(steps);
      expect(play(server(SYN))).toEqual([false]);
      expect(kernel.counted()).toMatchObject({ drop_policy_deny: 1 });
    });

    test('a server can open a connection on the same ports if the policy allows it, and the connection of the client continues', () => {
      kernel.activate(compileForBoth(onlyFrom(CLIENT, SERVER)));
      passAll([...HANDSHAKE, server(SYN), client(ACK), server(ACK)]);
      expect(flow()).toMatchObject([{ state: 'tcp_established', source: CLIENT }]);
    });
  });

  describe('a TCP packet with any combination of flags', () => {
    const combinations = Array.from({ length: 64 }, (_, flags) => flags);
    const impossible = combinations.filter((flags) => !isSent(flags));
    const droppedAfter = (steps: readonly Step[], side: 'client' | 'server') =>
      combinations.filter((flags) => {
        kernel.forget();
        play(...steps);
        return !play([side, flags])[0];
      });

    test.each<[string, readonly Step[]]>([
      ['half open', [client(SYN)]],
      ['answered by a SYN ACK', [client(SYN), server(SYN | ACK)]],
      ['established', HANDSHAKE],
      ['half closed', [...HANDSHAKE, client(FIN | ACK), server(ACK)]],
      ['closing', BY_BOTH],
      ['reset', [...HANDSHAKE, server(RST)]],
    ])('a TCP packet from the client passes if RFC 9293 allows its flags, while the connection is %s', (_, steps) => {
      expect(droppedAfter(steps, 'client')).toEqual(impossible);
    });

    test.each<[string, readonly Step[], boolean]>([
      ['half open', [client(SYN)], true],
      ['answered by a SYN ACK', [client(SYN), server(SYN | ACK)], true],
      ['established', HANDSHAKE, false],
      ['half closed', [...HANDSHAKE, client(FIN | ACK), server(ACK)], false],
      ['closing', BY_BOTH, false],
      ['reset', [...HANDSHAKE, server(RST)], false],
    ])(
      'a TCP packet from the server passes if RFC 9293 allows its flags (SYN only in the handshake; state: %s)',
      (_, steps, synPasses) => {
        const opens = (flags: number): boolean => isSent(flags) && (flags & (SYN | ACK)) === SYN;
        expect(droppedAfter(steps, 'server')).toEqual(
          combinations.filter((flags) => !isSent(flags) || (opens(flags) && !synPasses)),
        );
      },
    );

    test('a TCP packet without a flow passes only if it is a SYN of the client', () => {
      const onlySyn = combinations.filter((flags) => !isSent(flags) || (flags & (SYN | ACK)) !== SYN);
      expect(droppedAfter([], 'client')).toEqual(onlySyn);
      expect(droppedAfter([], 'server')).toEqual(combinations);
    });

    test('a TCP packet is dropped if RFC 9293 forbids its flags, also in audit mode and during the pickup period (dataplane.pickup)', () => {
      kernel.activate(auditAll);
      expect(droppedAfter([], 'client')).toEqual(impossible);
      kernel.forget();
      kernel.slots.setPickupUntil(process.hrtime.bigint() + 60_000_000_000n);
      for (const flags of impossible) play(client(flags));
      expect(kernel.counted()).toEqual({ drop_tcp_flags: impossible.length });
    });
  });

  describe('a TCP packet that has no flow and is not a SYN', () => {
    const FLAGS = [ACK, SYN | ACK, FIN | ACK, RST, RST | ACK, PSH | ACK];
    const pickUp = (): void => kernel.slots.setPickupUntil(process.hrtime.bigint() + 60_000_000_000n);

    test('a TCP packet without a flow that is not a SYN is dropped as out of state, whether the policy allows or denies it', () => {
      for (const flags of FLAGS) expect(play(client(flags))).toEqual([false]);
      kernel.activate(denyAll);
      for (const flags of FLAGS) expect(play(client(flags))).toEqual([false]);
      expect(kernel.counted()).toEqual({ drop_out_of_state: 12 });
    });

    test('a TCP packet without a flow that is not a SYN passes in audit mode and opens no flow', () => {
      kernel.activate(auditAll);
      for (const flags of FLAGS) expect(play(client(flags))).toEqual([true]);
      expect(kernel.counted()).toEqual({ audit: 6 });
    });

    test.each<[string, readonly Step[], string]>([
      ['an ACK', [client(ACK), server(ACK)], 'tcp_established'],
      ['an ACK of the server', [server(ACK), client(ACK)], 'tcp_established'],
      ['a FIN', [client(FIN | ACK), server(ACK)], 'tcp_half_closed'],
      ['a FIN of the server', [server(FIN | ACK), client(ACK)], 'tcp_half_closed'],
      ['a SYN ACK', [server(SYN | ACK), client(ACK)], 'tcp_established'],
    ])(
      'a TCP packet that is not a SYN (%s) opens a flow during the pickup period (dataplane.pickup), and a packet of the other side confirms the flow',
      (_, steps, state) => {
        pickUp();
        expect(play(...steps.slice(0, 1))).toEqual([true]);
        expect(kernel.counted()).toEqual({ allow: 1, half_opened: 1 });
        kernel.slots.setPickupUntil(0n);
        expect(play(...steps.slice(1))).toEqual([true]);
        expect(kernel.flowsIn('half_open')).toEqual([]);
        expect(kernel.flowsIn('flows')).toMatchObject([{ state, source: CLIENT, packets: [1n, 1n] }]);
        kernel.forget();
        expect(play(...steps.slice(0, 1))).toEqual([false]);
      },
    );

    test('a TCP packet that is not a SYN opens no flow during the pickup period (dataplane.pickup) if the policy denies both directions', () => {
      kernel.activate(denyAll);
      pickUp();
      expect(play(client(ACK), server(ACK))).toEqual([false, false]);
      expect(kernel.counted()).toEqual({ drop_policy_deny: 2 });
    });

    test('a TCP packet that is not a SYN opens a flow from its sender during the pickup period (dataplane.pickup) if the policy allows both directions', () => {
      kernel.activate(allowAll);
      pickUp();
      play(server(ACK));
      expect(kernel.flowIn('half_open')).toMatchObject({ source: SERVER });
    });
  });

  test('a SYN with payload is dropped if the policy denies it', () => {
    kernel.activate(denyAll);
    expect(kernel.runPacket(tcp, { tcpFlags: SYN, payloadBytes: 900 }).returned).toBe(DROPPED);
    expect(kernel.counted()).toEqual({ drop_policy_deny: 1 });
  });

  /** Sends the packets in order. Returns, for each packet, whether it passed. */
  function send(entry: Entry, ...steps: readonly Numbered[]): boolean[] {
    return steps.map(([side, tcpFlags, sequence, acknowledgment = 0, payloadBytes = 0]) => {
      const packet = side === 'client' ? tcp : back(tcp);
      const options = { tcpFlags, sequence: sequence >>> 0, acknowledgment: acknowledgment >>> 0, payloadBytes };
      return kernel.runPacket(packet, options, 0, entry).returned === PASSED;
    });
  }

  describe('a TCP reset in an open connection', () => {
    const WRONG = [1, -1, 1_000, 0x4000, -0x4000];
    const sides = [
      ['server', SERVER_AT, ['client', ACK, CLIENT_AT, SERVER_AT]],
      ['client', CLIENT_AT, ['server', ACK, SERVER_AT, CLIENT_AT]],
    ] as const satisfies readonly (readonly [string, number, Numbered])[];

    describe.each(sides)('sent by the %s', (side, expected, answer) => {
      test.each([RST, RST | ACK])(
        'a TCP reset with a sequence number that its receiver does not expect is dropped and counted (flags %s)',
        (flags) => {
          for (const by of WRONG) {
            kernel.forget();
            send('in', ...OPENING, answer);
            expect(send('in', [side, flags, expected + by])).toEqual([false]);
            expect(flow()).toMatchObject([
              { state: 'tcp_established', packets: side === 'server' ? [3n, 1n] : [2n, 2n] },
            ]);
            expect(kernel.counted()).toMatchObject({ drop_tcp_sequence: 1 });
          }
        },
      );

      test('a TCP reset with the sequence number that its receiver expects passes, and moves the flow to the state tcp_reset', () => {
        send('in', ...OPENING, answer);
        expect(send('in', [side, RST, expected])).toEqual([true]);
        expect(flow()).toMatchObject([{ state: 'tcp_reset' }]);
      });

      test('the sequence number expected in a TCP reset is the last acknowledgment of its receiver, whether the fast path saw it or not', () => {
        const later = (expected + 5_000) >>> 0;
        const [receiver, , sequence] = answer;
        const more: Numbered = [receiver, PSH | ACK, sequence, later];
        send('in', ...OPENING, more);
        kernel.newEpoch();
        send('in', more);
        expect(send('in', [side, RST, expected], more, [side, RST, later])).toEqual([false, true, true]);
      });

      test('after a packet of its receiver, only the first TCP reset is compared with the expected number; a second reset is dropped', () => {
        send('in', ...OPENING, answer);
        expect(send('in', [side, RST, expected + 1], [side, RST, expected])).toEqual([false, false]);
        expect(send('in', answer, [side, RST, expected])).toEqual([true, true]);
        expect(kernel.counted()).toMatchObject({ drop_tcp_sequence: 2 });
      });

      test('a TCP reset is dropped if its sequence number occurs only in packets of its own side', () => {
        send('in', ...OPENING, answer);
        send('in', [side, PSH | ACK, 4_000, 4_000], [side, SYN | ACK, 3_999, 4_000]);
        expect(send('in', [side, RST, 4_000])).toEqual([false]);
        expect(flow()).toMatchObject([{ state: 'tcp_established' }]);
      });

      test('a TCP reset with any sequence number passes if the flow has no acknowledgment of its receiver yet', () => {
        kernel.slots.setPickupUntil(process.hrtime.bigint() + 60_000_000_000n);
        send('in', [side, ACK, expected, 9]);
        expect(send('in', [side, RST, expected + 77])).toEqual([true]);
        expect(flow()).toMatchObject([{ state: 'tcp_reset' }]);
      });
    });

    test('a TCP reset from either side with a wrong sequence number is dropped while only the SYN ACK has been seen', () => {
      for (const [side, expected] of sides) {
        kernel.forget();
        send('in', ...OPENING.slice(0, 2));
        expect(send('in', [side, RST, expected + 1])).toEqual([false]);
        expect(flow()).toMatchObject([{ state: 'tcp_syn_received' }]);
        expect(send('in', ...OPENING.slice(2))).toEqual([true]);
        expect(flow()).toMatchObject([{ state: 'tcp_established' }]);
      }
    });

    test('a TCP reset that answers a SYN passes, although the sender of the SYN has acknowledged nothing yet', () => {
      expect(send('in', ...OPENING.slice(0, 1), ['server', RST | ACK, 0, CLIENT_AT])).toEqual([true, true]);
      expect(flow()).toMatchObject([{ state: 'tcp_reset' }]);
    });

    test('a TCP reset from an unpoliced interface passes, and changes the flow only if its sequence number is the expected number', () => {
      send('out_foreign', ...OPENING.slice(0, 1));
      send('in', ...OPENING.slice(1, 2));
      send('out_foreign', ...OPENING.slice(2));
      send('in', ['server', ACK, SERVER_AT, CLIENT_AT]);
      expect(send('out_foreign', ['client', RST, CLIENT_AT + 1])).toEqual([true]);
      expect(flow()).toMatchObject([{ state: 'tcp_established', foreign: true }]);
      send('in', ['server', ACK, SERVER_AT, CLIENT_AT]);
      send('out_foreign', ['client', RST, CLIENT_AT]);
      expect(flow()).toMatchObject([{ state: 'tcp_reset', foreign: true }]);
    });
  });

  describe('a TCP FIN in an open connection', () => {
    const sides = [
      ['client', CLIENT_AT, 'server', SERVER_AT],
      ['server', SERVER_AT, 'client', CLIENT_AT],
    ] as const;
    const state = (): unknown => flow().map(({ state }) => state);

    describe.each(sides)('sent by the %s', (side, at, receiver, receiverAt) => {
      const answer = (acknowledgment: number): Numbered => [receiver, ACK, receiverAt, acknowledgment];
      const fin = (sequence: number, payloadBytes = 0): Numbered => [
        side,
        FIN | ACK,
        sequence,
        receiverAt,
        payloadBytes,
      ];
      const data = (sequence: number): Numbered => [side, PSH | ACK, sequence, receiverAt, 10];
      beforeEach(() => {
        send('in', ...OPENING, answer(at));
      });

      test('a TCP FIN with the expected sequence number half closes the flow, and an acknowledgment of its receiver keeps the flow half closed', () => {
        send('in', fin(at));
        expect(state()).toEqual(['tcp_half_closed']);
        send('in', answer(at + 1), answer(at + 1));
        expect(state()).toEqual(['tcp_half_closed']);
      });

      test('a TCP FIN behind data half closes the flow only when its receiver has acknowledged the data and the FIN', () => {
        send('in', data(at), data(at + 10), fin(at + 20, 7), answer(at + 10), answer(at + 20));
        expect(state()).toEqual(['tcp_established']);
        send('in', answer(at + 28));
        expect(state()).toEqual(['tcp_half_closed']);
      });

      test('a TCP FIN with a sequence number that its receiver does not acknowledge does not half close the flow', () => {
        for (const by of [1, -2, 1_000, 0x4000, -0x4000]) {
          send('in', fin(at + by));
          expect(state()).toEqual(['tcp_established']);
          send('in', answer(at), answer(at), [side, ACK, at, receiverAt]);
          expect(state()).toEqual(['tcp_established']);
        }
        expect(send('in', fin(at), answer(at + 1))).toEqual([true, true]);
        expect(state()).toEqual(['tcp_half_closed']);
      });

      test('a forged TCP FIN with the right sequence number half closes the flow only until the next packet of its receiver', () => {
        send('in', fin(at, 5));
        expect(state()).toEqual(['tcp_half_closed']);
        send('in', answer(at), fin(at, 5), fin(at + 6), [side, ACK, at, receiverAt]);
        expect(state()).toEqual(['tcp_established']);
      });

      test('a forged TCP FIN together with a forged reset leaves the flow established while both sides send data', () => {
        for (const number of [at, at + 5_000]) {
          send('in', fin(number), [side, RST, at + 777]);
          for (let sent = 0; sent < 30; sent += 10) {
            send('in', [receiver, PSH | ACK, receiverAt + sent, at + sent, 10]);
            send('in', [side, PSH | ACK, at + sent, receiverAt + sent + 10, 10]);
          }
          expect(state()).toEqual(['tcp_established']);
          send('in', answer(at));
        }
      });

      test('a TCP FIN half closes the flow while its receiver sends nothing, also if the FIN is repeated', () => {
        send('in', fin(at), fin(at), [side, ACK, at + 1, receiverAt]);
        expect(state()).toEqual(['tcp_half_closed']);
      });

      test('after a change of the policy, a TCP FIN with a wrong sequence number does not half close the flow, and a right one does', () => {
        kernel.newEpoch();
        send('in', fin(at + 5));
        kernel.newEpoch();
        send('in', answer(at));
        expect(state()).toEqual(['tcp_established']);
        send('in', fin(at));
        kernel.newEpoch();
        send('in', answer(at + 1));
        expect(state()).toEqual(['tcp_half_closed']);
      });

      test('acknowledged data with a higher sequence number than a TCP FIN moves the flow from half closed back to established', () => {
        send('in', fin(at), answer(at + 1), data(at - 10), answer(at + 1), answer(at + 1));
        expect(state()).toEqual(['tcp_half_closed']);
        send('in', data(at + 1), answer(at + 11));
        expect(state()).toEqual(['tcp_established']);
      });

      test('a flow stays half closed if its acknowledged TCP FIN is repeated, also with earlier data', () => {
        send('in', fin(at), answer(at + 1), fin(at), fin(at - 10, 10), [side, ACK, at + 1, receiverAt]);
        expect(state()).toEqual(['tcp_half_closed']);
        expect(send('in', [side, RST, at + 1])).toEqual([true]);
      });

      test('a forged TCP FIN delays a reset from the same side until its receiver sends another packet', () => {
        send('in', fin(at + 77));
        expect(send('in', [side, RST, at], answer(at), [side, RST, at])).toEqual([false, true, true]);
        expect(state()).toEqual(['tcp_reset']);
      });

      test('a TCP FIN and the FIN of the other side together move the flow to the state tcp_closing', () => {
        send('in', fin(at), [receiver, FIN | ACK, receiverAt, at + 1]);
        expect(state()).toEqual(['tcp_half_closed']);
        send('in', [side, ACK, at + 1, receiverAt + 1]);
        expect(state()).toEqual(['tcp_closing']);
      });
    });

    test('two TCP FINs that both sides send at the same time move the flow to tcp_closing when both are acknowledged', () => {
      send('in', ...OPENING, ['client', FIN | ACK, CLIENT_AT, SERVER_AT], ['server', FIN | ACK, SERVER_AT, CLIENT_AT]);
      expect(state()).not.toEqual(['tcp_closing']);
      send('in', ['client', ACK, CLIENT_AT + 1, SERVER_AT + 1], ['server', ACK, SERVER_AT + 1, CLIENT_AT + 1]);
      expect(state()).toEqual(['tcp_closing']);
    });
  });
}

describe('IPv4', () => stateTests('ipv4'));
describe('IPv6', () => stateTests('ipv6'));
