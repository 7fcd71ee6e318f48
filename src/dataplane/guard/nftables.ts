import { readFileSync } from 'node:fs';
import type { Family as IpFamily } from '#contracts/policy/policy-model.js';
import {
  attributeList,
  attributesIn,
  NETLINK_NETFILTER,
  type NetlinkMessage,
  NetlinkSocket,
  NLM_F_DUMP,
  NLM_F_REQUEST,
  viewOf,
} from '#libc/netlink.js';

const SUBSYSTEM_NFTABLES = 10;
const NFPROTO_INET = 1;
export const NFPROTO_BRIDGE = 7;
// Size of `struct nfgenmsg` in bytes.
const HEADER_BYTES = 4;
const NFT_MSG = {
  ...{ newTable: 0, getTable: 1, newChain: 3, getChain: 4, newRule: 6, getRule: 7 },
  ...{ newFlowtable: 22, getFlowtable: 23 },
} as const;
const NFTA = {
  tableName: 1,
  tableFlags: 2,
  chainTable: 1,
  chainName: 3,
  chainHook: 4,
  chainType: 7,
  hookNumber: 1,
  ruleTable: 1,
  ruleChain: 2,
  ruleExpressions: 4,
  ruleUserdata: 7,
  flowtableTable: 1,
  flowtableName: 2,
  flowtableHook: 3,
  flowtableFlags: 7,
  flowtableDevices: 3,
} as const;
const NFT_FLOWTABLE_HW_OFFLOAD = 1;
const NFPROTO_IPV4 = 2;
const NFPROTO_NETDEV = 5;
const NFPROTO_IPV6 = 10;
const FAMILIES = { inet: NFPROTO_INET, ip: NFPROTO_IPV4, ip6: NFPROTO_IPV6, netdev: NFPROTO_NETDEV } as const;
type Family = keyof typeof FAMILIES;
const FAMILY_NAMES = new Map(Object.entries(FAMILIES).map(([name, number]) => [number as number, name as Family]));
const NFT_TABLE_F_DORMANT = 1;
const UDATA_COMMENT = 0;

/**
 * Returns the name of the nftables table that a netlink notification is about. Undefined if nftables did not
 * send the notification, or if the table's family is neither `inet` nor `bridge`.
 */
export function changedTable({ type, payload }: NetlinkMessage): string | undefined {
  if (type >> 8 !== SUBSYSTEM_NFTABLES || ![NFPROTO_INET, NFPROTO_BRIDGE].includes(payload.getUint8(0)))
    return undefined;
  return text(attributesIn(payload, HEADER_BYTES).get(NFTA.tableName));
}

/**
 * Returns the comment of each rule of a chain, in the order of the rules; undefined if the table does not
 * exist or is dormant.
 */
export function ruleComments(table: string, chain: string, family = NFPROTO_INET): string[] | undefined {
  return rulesIn(table, chain, family)?.map((rule) => commentIn(rule.get(NFTA.ruleUserdata)));
}

/**
 * Returns the expressions of each rule of a chain, as one netlink attribute list for each rule. The array is
 * empty if the table does not exist or is dormant.
 */
export function ruleExpressions({ table, name, family }: BaseChain): Uint8Array[] {
  const rules = rulesIn(table, name, FAMILIES[family]) ?? [];
  return rules.map((rule) => rule.get(NFTA.ruleExpressions) ?? new Uint8Array());
}

function rulesIn(table: string, chain: string, family: number): Map<number, Uint8Array>[] | undefined {
  const socket = new NetlinkSocket(NETLINK_NETFILTER, 0);
  try {
    const [found] = ask(socket, family, NFT_MSG.getTable, NFT_MSG.newTable, NLM_F_REQUEST, [NFTA.tableName, table]);
    const flags = found?.get(NFTA.tableFlags);
    if (flags === undefined || ((flags.at(-1) ?? 0) & NFT_TABLE_F_DORMANT) !== 0) return undefined;
    return ask(
      socket,
      family,
      NFT_MSG.getRule,
      NFT_MSG.newRule,
      NLM_F_REQUEST | NLM_F_DUMP,
      [NFTA.ruleTable, table],
      [NFTA.ruleChain, chain],
    );
  } finally {
    socket.close();
  }
}

/** An nftables chain. `hook`: netfilter's number of the hook. `type`: `filter`, `nat` or `route`. */
export type BaseChain = {
  readonly family: Family;
  readonly table: string;
  readonly name: string;
  readonly type: string;
  readonly hook: number;
};

/** Returns the base chains of the nftables families inet, ip, ip6 and netdev. */
export function baseChains(): BaseChain[] {
  return dump(NFT_MSG.getChain, NFT_MSG.newChain, FAMILY_NAMES).flatMap(({ family, attributes: chain }) => {
    const hook = chain.get(NFTA.chainHook);
    if (hook === undefined) return [];
    const number = attributesIn(viewOf(hook), 0).get(NFTA.hookNumber);
    return {
      family,
      table: text(chain.get(NFTA.chainTable)) ?? '',
      name: text(chain.get(NFTA.chainName)) ?? '',
      type: text(chain.get(NFTA.chainType)) ?? '',
      hook: number === undefined ? -1 : viewOf(number).getUint32(0),
    };
  });
}

/** `offloads`: the flowtable has the flag `offload`. `devices`: names of its interfaces. */
export type Flowtable = Pick<BaseChain, 'table' | 'name'> & {
  readonly family: 'inet' | 'ip' | 'ip6';
  readonly offloads: boolean;
  readonly devices: readonly string[];
};

/** Returns the flowtables of the nftables family inet, and of ip or ip6 for each of these IP families. */
export function flowtables(families: readonly IpFamily[] = ['ipv4']): Flowtable[] {
  const names = new Map<number, Flowtable['family']>([[NFPROTO_INET, 'inet']]);
  if (families.includes('ipv4')) names.set(NFPROTO_IPV4, 'ip');
  if (families.includes('ipv6')) names.set(NFPROTO_IPV6, 'ip6');
  return dump(NFT_MSG.getFlowtable, NFT_MSG.newFlowtable, names).map(({ family, attributes: flowtable }) => {
    const flags = flowtable.get(NFTA.flowtableFlags);
    const hook = flowtable.get(NFTA.flowtableHook);
    const devices = hook === undefined ? undefined : attributesIn(viewOf(hook), 0).get(NFTA.flowtableDevices);
    return {
      family,
      table: text(flowtable.get(NFTA.flowtableTable)) ?? '',
      name: text(flowtable.get(NFTA.flowtableName)) ?? '',
      offloads: flags !== undefined && (viewOf(flags).getUint32(0) & NFT_FLOWTABLE_HW_OFFLOAD) !== 0,
      devices: devices === undefined ? [] : attributeList(viewOf(devices), 0).map(([, name]) => text(name) ?? ''),
    };
  });
}

/** Returns the attributes of each object of a kind in the nftables families whose numbers `names` has. */
function dump<F extends string>(
  get: number,
  answer: number,
  names: ReadonlyMap<number, F>,
): { readonly family: F; readonly attributes: Map<number, Uint8Array> }[] {
  const socket = new NetlinkSocket(NETLINK_NETFILTER, 0);
  try {
    const types = [get, answer].map((type) => (SUBSYSTEM_NFTABLES << 8) | type);
    return socket.dump(types[0] ?? 0, types[1] ?? 0, Uint8Array.of(0, 0, 0, 0)).flatMap((payload) => {
      const family = names.get(payload.getUint8(0));
      return family === undefined ? [] : { family, attributes: attributesIn(payload, HEADER_BYTES) };
    });
  } finally {
    socket.close();
  }
}

/**
 * Sends a netlink request to nftables and returns the attributes of each reply. Returns an empty array if
 * the kernel replies with an error, or if replies were lost.
 */
function ask(
  socket: NetlinkSocket,
  family: number,
  request: number,
  answer: number,
  flags: number,
  ...attributes: readonly (readonly [number, string])[]
): Map<number, Uint8Array>[] {
  const parts = attributes.map(([type, value]) => attribute(type, value));
  const body = Buffer.concat([Uint8Array.of(family, 0, 0, 0), ...parts]);
  socket.send((SUBSYSTEM_NFTABLES << 8) | request, flags, body);
  const answers = socket.receive();
  if (answers === 'lost') return [];
  return answers
    .filter(({ type }) => type === ((SUBSYSTEM_NFTABLES << 8) | answer))
    .map(({ payload }) => attributesIn(payload, HEADER_BYTES));
}

function attribute(type: number, value: string): Buffer {
  const length = 4 + value.length + 1;
  const bytes = Buffer.alloc((length + 3) & ~3);
  bytes.writeUInt16LE(length, 0);
  bytes.writeUInt16LE(type, 2);
  bytes.write(value, 4, 'latin1');
  return bytes;
}

/**
 * Returns the comment in the user data of a rule; an empty string if the rule has no comment. User data is a
 * list of entries; each entry is a type byte, a length byte and a value.
 */
function commentIn(userdata: Uint8Array = new Uint8Array()): string {
  for (let at = 0; at + 2 <= userdata.length; at += 2 + (userdata[at + 1] ?? 0)) {
    if (userdata[at] === UDATA_COMMENT) return text(userdata.subarray(at + 2, at + 2 + (userdata[at + 1] ?? 0))) ?? '';
  }
  return '';
}

/** Decodes a netlink string attribute, without its final NUL byte. */
export function text(bytes: Uint8Array | undefined): string | undefined {
  return bytes === undefined ? undefined : Buffer.from(bytes).toString('utf8').replace(/\0$/, '');
}

/**
 * Returns the names of the tables of iptables-legacy, or of ip6tables-legacy; `nft list` does not show their
 * rules. Returns an empty list if the user is not root, because only root may read the file.
 */
export function legacyTables(family: IpFamily): readonly string[] {
  try {
    return readFileSync(`/proc/thread-self/net/${family === 'ipv4' ? 'ip' : 'ip6'}_tables_names`, 'utf8')
      .split('\n')
      .filter((name) => name !== '');
  } catch (failure) {
    if (!['ENOENT', 'EACCES'].includes((failure as NodeJS.ErrnoException).code ?? '')) throw failure;
    return [];
  }
}
