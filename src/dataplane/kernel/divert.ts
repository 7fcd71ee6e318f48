import { spawnSync } from 'node:child_process';
import { redirectBit } from '#dataplane/program/settings.js';
import { NETLINK_ROUTE, NetlinkSocket, NLM_F_REQUEST } from '#libc/netlink.js';

/** Preference of the rule, and number of its table; `bpf/others.h` knows both. */
const NUMBER = '8353';

const AF_INET = 2;
const RTM_NEWROUTE = 24;
const RTM_GETROUTE = 26;
const RTN_LOCAL = 2;
const RTA = { destination: 1, mark: 16 } as const;
// struct rtmsg
const ROUTE_HEADER_BYTES = 12;
const ROUTE_TYPE = 7;
/** RFC 5737: nobody has it. */
const ANYWHERE = [192, 0, 2, 1];

class DiversionFailure extends Error {
  override readonly name = 'DiversionFailure';
  readonly code = 'diversion_failed';
}

/**
 * Has the node deliver to itself what the datapath marks as diverted, whatever address it is for. Without it such a packet
 * is not forwarded: it has a socket, or comes to the guard.
 */
export function makeDiversion(markMask: number): void {
  if (diversionStands(markMask)) return;
  removeDiversion();
  const mark = `0x${redirectBit(markMask).toString(16)}`;
  ip('rule', 'add', 'pref', NUMBER, 'fwmark', `${mark}/${mark}`, 'lookup', NUMBER);
  ip('route', 'replace', 'local', '0.0.0.0/0', 'dev', 'lo', 'table', NUMBER);
}

/** Does nothing where there is none. */
export function removeDiversion(): void {
  while (run(['rule', 'del', 'pref', NUMBER, 'lookup', NUMBER]).status === 0);
  run(['route', 'flush', 'table', NUMBER]);
}

/** Whether a packet with the mark is for the node, wherever it is sent: by the rule and its route, or by nothing. */
export function diversionStands(markMask: number): boolean {
  const mark = new Uint8Array(Uint32Array.of(redirectBit(markMask)).buffer);
  const request = new Uint8Array(ROUTE_HEADER_BYTES);
  request.set([AF_INET, 32]);
  const socket = new NetlinkSocket(NETLINK_ROUTE, 0);
  try {
    const attributes = [attribute(RTA.destination, ANYWHERE), attribute(RTA.mark, mark)];
    socket.send(RTM_GETROUTE, NLM_F_REQUEST, Uint8Array.of(...request, ...attributes.flat()));
    const answers = socket.receive();
    // Where nothing leads there the kernel says an error.
    const found = answers === 'lost' ? undefined : answers.find(({ type }) => type === RTM_NEWROUTE);
    return found?.payload.getUint8(ROUTE_TYPE) === RTN_LOCAL;
  } finally {
    socket.close();
  }
}

/** Of four bytes. */
function attribute(type: number, bytes: Iterable<number>): readonly number[] {
  return [8, 0, type, 0, ...bytes];
}

function ip(...words: readonly string[]): void {
  const { status, stderr, error } = run(words);
  if (status !== 0) throw new DiversionFailure(`ip ${words.join(' ')}: ${error?.message ?? stderr.trim()}`);
}

function run(words: readonly string[]) {
  return spawnSync('ip', ['-4', ...words], { encoding: 'utf8' });
}
