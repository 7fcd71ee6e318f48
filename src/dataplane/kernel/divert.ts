import { spawnSync } from 'node:child_process';
import { redirectBit } from '#dataplane/program/settings.js';
import { attributesIn, NETLINK_ROUTE, NetlinkSocket } from './netlink.js';

/** Preference of the rule, and number of its table; `bpf/others.h` knows both. */
const NUMBER = '8353';

const AF_INET = 2;
const RTM_NEWRULE = 32;
const RTM_GETRULE = 34;
// struct fib_rule_hdr
const RULE_HEADER_BYTES = 12;
const FRA = { priority: 6, mark: 10, table: 15, mask: 16 } as const;

class DiversionFailure extends Error {
  override readonly name = 'DiversionFailure';
  readonly code = 'diversion_failed';
}

/**
 * Has the node deliver to itself what the datapath marks as diverted, whatever address it is for. Without it such a packet
 * is not forwarded: it has a socket, or comes to the guard.
 */
export function makeDiversion(markMask: number): void {
  if (!diversionStands(markMask)) {
    const mark = `0x${redirectBit(markMask).toString(16)}`;
    removeDiversion();
    ip('rule', 'add', 'pref', NUMBER, 'fwmark', `${mark}/${mark}`, 'lookup', NUMBER);
  }
  ip('route', 'replace', 'local', '0.0.0.0/0', 'dev', 'lo', 'table', NUMBER);
}

/** Does nothing where there is none. */
export function removeDiversion(): void {
  while (run(['rule', 'del', 'pref', NUMBER, 'lookup', NUMBER]).status === 0);
  run(['route', 'flush', 'table', NUMBER]);
}

/** Whether the rule is there; its table is the kernel's to lose only with the loopback interface. */
export function diversionStands(markMask: number): boolean {
  const bit = redirectBit(markMask);
  const wanted = [
    [FRA.priority, Number(NUMBER)],
    [FRA.table, Number(NUMBER)],
    [FRA.mark, bit],
    [FRA.mask, bit],
  ] as const;
  const request = new Uint8Array(RULE_HEADER_BYTES);
  request[0] = AF_INET;
  const socket = new NetlinkSocket(NETLINK_ROUTE, 0);
  try {
    return socket.dump(RTM_GETRULE, RTM_NEWRULE, request).some((rule) => {
      const attributes = attributesIn(rule, RULE_HEADER_BYTES);
      return wanted.every(([type, value]) => wordIn(attributes.get(type)) === value);
    });
  } finally {
    socket.close();
  }
}

function wordIn(bytes: Uint8Array | undefined): number | undefined {
  return bytes === undefined ? undefined : new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
}

function ip(...words: readonly string[]): void {
  const { status, stderr, error } = run(words);
  if (status !== 0) throw new DiversionFailure(`ip ${words.join(' ')}: ${error?.message ?? stderr.trim()}`);
}

function run(words: readonly string[]) {
  return spawnSync('ip', ['-4', ...words], { encoding: 'utf8' });
}
