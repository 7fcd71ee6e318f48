import type { Review } from '#contracts/datapath/datapath.js';
import type { Interface } from '#dataplane/attach/interfaces/interfaces.js';
import {
  type BaseChain,
  baseChains,
  flowtables,
  legacyTables,
  ruleExpressions,
  text,
} from '#dataplane/guard/nftables.js';
import { defaultInterfaces } from '#dataplane/routes/routes.js';
import { listRules } from '#dataplane/routes/routing-rules.js';
import { check, libc } from '#libc/libc.js';
import { attributeList, attributesIn, viewOf } from '#libc/netlink.js';

const HOOK = { prerouting: 0, postrouting: 4 } as const;
const NFTA_EXPRESSION = { name: 1, data: 2 } as const;
const NFTA_META_KEY = 2;
const META = { incomingIndex: 4, outgoingIndex: 5, incomingName: 6, outgoingName: 7 } as const;
const NFTA_CMP = { operation: 2, data: 3 } as const;
const NFT_CMP_EQ = 0;
const NFTA_DATA = { value: 1, verdict: 2 } as const;
const NFTA_IMMEDIATE_DATA = 2;
const NFTA_VERDICT_CODE = 1;
const JUMP_VERDICTS: readonly number[] = [-3, -4]; // NFT_JUMP and NFT_GOTO, as nf_tables verdict codes
const NFTA_LOOKUP_DREG = 3;
const NFTA_TARGET_NAME = 1;
const TARGETS: readonly string[] = ['MASQUERADE', 'SNAT', 'DNAT', 'REDIRECT', 'NETMAP'];
const NAME_BYTES = 16;

/**
 * The interface tests of one NAT rule. The rule translates addresses, or jumps to a chain that may translate
 * them. `incoming` or `outgoing` is undefined if the rule does not test that interface.
 */
type Translation = { readonly incoming: IsMet | undefined; readonly outgoing: IsMet | undefined };
type IsMet = (found: Interface) => boolean;
type Expression = { readonly name: string; readonly data: DataView };

/**
 * The NAT that the datapath supports. `obstacle`: why the datapath cannot decide translated flows by the
 * client before SNAT and the server after DNAT; null if it can. `judges`: whether the kernel has netfilter
 * programs. Without them, only replies of TCP and UDP flows are supported. `noSearch`: why BPF programs
 * cannot search conntrack; null if they can.
 */
export type NatSupport = {
  readonly obstacle: string | null;
  readonly judges: boolean;
  readonly noSearch: string | null;
  /** Why the datapath cannot decide translated flows of IPv6 by their real ends; null if it can. */
  readonly ipv6Obstacle: string | null;
};

const NEEDS_JUDGE = 'this needs Linux 6.4 or later with CONFIG_NETFILTER_BPF_LINK';

/**
 * Returns a warning for each nftables chain that translates addresses of IPv6 packets (NAT66) in a way that
 * the datapath does not support. It knows a translation by conntrack, from the second packet of a connection
 * on.
 */
export function ipv6NatWarnings({ ipv6Obstacle }: NatSupport): string[] {
  const chains = baseChains().filter(
    ({ family, type, hook }) =>
      (family === 'ip6' || family === 'inet') &&
      type === 'nat' &&
      (hook === HOOK.prerouting || hook === HOOK.postrouting),
  );
  return chains
    .filter((chain) => ruleExpressions(chain).some((rule) => translationIn(rule).length > 0))
    .flatMap(({ family, table, name, hook }) => {
      const where = `nftables chain ${family} ${table} ${name}`;
      if (hook === HOOK.prerouting)
        return `${where} may translate the destination of IPv6 packets: a new connection to an address of the node is dropped, and the policy decides another by the destination before the translation too`;
      return ipv6Obstacle === null
        ? `${where} may translate the source of IPv6 packets: only replies by TCP and UDP pass, and the guard drops ICMPv6 and fragments`
        : `${where} may translate the source of IPv6 packets: replies to the node's addresses are dropped (${ipv6Obstacle})`;
    });
}

/**
 * Returns one fault for each nftables chain, and one for the table `nat` of iptables-legacy, that does
 * unsupported NAT on a policed outside interface (D17b). There, the policy would see the node's addresses
 * instead of the client's. An outside interface is one that a default route uses, or that a postrouting rule
 * names. If the node has no default route, every policed interface counts as an outside interface. `switched`
 * are the policed bridge ports whose switched packets the kernel gives to the chains of IPv4. DNAT there
 * counts for each of these ports.
 */
export function reviewNat(
  policed: readonly Interface[],
  { obstacle, judges, noSearch }: NatSupport,
  switched: readonly number[] = [],
): Review {
  if (obstacle === null && judges) return noSearch === null ? { faults: [], warnings: [] } : judgedAlone(noSearch);
  let defaults: ReadonlySet<number> | undefined;
  const isOutside: IsMet = ({ ifindex }) => {
    defaults ??= outsideInterfaces();
    return defaults.size === 0 || defaults.has(ifindex);
  };
  const concerns = ({ hook }: BaseChain, { incoming, outgoing }: Translation, found: Interface): boolean =>
    hook === HOOK.postrouting
      ? (outgoing ?? isOutside)(found)
      : switched.includes(found.ifindex) || (incoming?.(found) !== false && isOutside(found));
  const chains = baseChains().filter(({ family, type, hook }) => {
    return (
      (family === 'ip' || family === 'inet') &&
      type === 'nat' &&
      (hook === HOOK.prerouting || hook === HOOK.postrouting)
    );
  });
  const found = chains.flatMap((chain) => {
    const translations = ruleExpressions(chain).flatMap(translationIn);
    const met = policed.filter((each) => translations.some((translation) => concerns(chain, translation, each)));
    const where = `nftables chain ${chain.family} ${chain.table} ${chain.name}`;
    return met.length === 0 ? [] : [{ where, met, isSource: chain.hook === HOOK.postrouting }];
  });
  const legacy = hasLegacyNat() ? policed.filter((each) => switched.includes(each.ifindex) || isOutside(each)) : [];
  if (legacy.length > 0) found.push({ where: 'table nat of iptables-legacy', met: legacy, isSource: false });
  const isPartial = (isSource: boolean): boolean => obstacle === null && isSource;
  return {
    faults: found.flatMap(({ where, met, isSource }) =>
      isPartial(isSource) ? [] : faultOf(where, met, obstacle ?? NEEDS_JUDGE),
    ),
    warnings: found.flatMap(({ where, met, isSource }) => (isPartial(isSource) ? warningOf(where, met) : [])),
  };
}

/**
 * Reviews a node whose BPF programs cannot search conntrack (`noSearch` is the reason), so that the forward
 * judge (a netfilter program) decides all translated packets. A flowtable is a fault, because its packets
 * skip the forward judge.
 */
function judgedAlone(noSearch: string): Review {
  if (!baseChains().some(({ family, type }) => type === 'nat' && family !== 'ip6') && !hasLegacyNat())
    return { faults: [], warnings: [] };
  return {
    faults: flowtables().map(
      ({ family, table, name }) =>
        `flowtable ${family} ${table} ${name} is not supported with NAT here (${noSearch}): remove the flowtable, or the NAT rules`,
    ),
    warnings: [
      `replies of translated flows are decided at the forward hook, which takes longer (${noSearch}); replies to an address that neither the node nor dataplane.translated has are dropped`,
    ],
  };
}

function faultOf(where: string, met: readonly Interface[], reason: string): string {
  const names = namesOf(met);
  return `${where} translates addresses at ${names}, which is not supported here (${reason}): remove ${names} from dataplane.interfaces, or remove the rules`;
}

function warningOf(where: string, met: readonly Interface[]): string {
  return `${where} translates sources at ${namesOf(met)}: only replies by TCP and UDP pass, and the guard drops ICMP and fragments, because ${NEEDS_JUDGE}`;
}

function namesOf(met: readonly Interface[]): string {
  return met.map(({ name }) => name).join(', ');
}

function outsideInterfaces(): ReadonlySet<number> {
  const tables = listRules('ipv4').flatMap(({ action, table }) => (action === 'table' ? table : []));
  return new Set([...new Set(tables)].flatMap(defaultInterfaces));
}

function translationIn(rule: Uint8Array): Translation[] {
  const expressions = attributeList(viewOf(rule), 0).map(([, element]) => expressionIn(element));
  if (!expressions.some(translates)) return [];
  let incoming: IsMet | undefined;
  let outgoing: IsMet | undefined;
  expressions.forEach((expression, index) => {
    const next = expressions[index + 1];
    if (expression.name !== 'meta' || next?.name !== 'cmp') return;
    const key = numberIn(expression.data, NFTA_META_KEY);
    if (key === META.incomingIndex || key === META.incomingName) incoming ??= comparison(key, next.data);
    if (key === META.outgoingIndex || key === META.outgoingName) outgoing ??= comparison(key, next.data);
  });
  return [{ incoming, outgoing }];
}

function expressionIn(element: Uint8Array): Expression {
  const attributes = attributesIn(viewOf(element), 0);
  const data = attributes.get(NFTA_EXPRESSION.data) ?? new Uint8Array();
  return { name: text(attributes.get(NFTA_EXPRESSION.name)) ?? '', data: viewOf(data) };
}

function translates({ name, data }: Expression): boolean {
  switch (name) {
    case 'nat':
    case 'masq':
    case 'redir':
      return true;
    case 'target':
      return TARGETS.includes(text(attributesIn(data, 0).get(NFTA_TARGET_NAME)) ?? '');
    case 'immediate': {
      const verdict = nested(nested(data, NFTA_IMMEDIATE_DATA), NFTA_DATA.verdict);
      return JUMP_VERDICTS.includes(numberIn(verdict, NFTA_VERDICT_CODE) | 0);
    }
    case 'lookup':
      // An nftables `lookup` expression that writes to register 0, the verdict register, is a verdict map. A
      // verdict map may jump to a chain that translates addresses.
      return attributesIn(data, 0).has(NFTA_LOOKUP_DREG) && numberIn(data, NFTA_LOOKUP_DREG) === 0;
    default:
      return false;
  }
}

/**
 * Converts an nftables `cmp` expression to a function that tests an interface. Returns undefined if the
 * expression does not test for "equal".
 */
function comparison(key: number, data: DataView): IsMet | undefined {
  if (numberIn(data, NFTA_CMP.operation) !== NFT_CMP_EQ) return undefined;
  const value = attributesIn(nested(data, NFTA_CMP.data), 0).get(NFTA_DATA.value) ?? new Uint8Array();
  if (key === META.incomingIndex || key === META.outgoingIndex) {
    const wanted = viewOf(value).getUint32(0, true);
    return ({ ifindex }) => ifindex === wanted;
  }
  const name = text(value)?.replace(/\0.*$/s, '') ?? '';
  // If the interface name in a rule ends with a wildcard, nftables compares only the bytes before the
  // wildcard.
  return value.length < NAME_BYTES ? (found) => found.name.startsWith(name) : (found) => found.name === name;
}

function nested(data: DataView, type: number): DataView {
  return viewOf(attributesIn(data, 0).get(type) ?? new Uint8Array());
}

/** Reads a big-endian 32-bit number from the netlink attribute `type`; 0 if the attribute is missing. */
function numberIn(data: DataView, type: number): number {
  const value = attributesIn(data, 0).get(type);
  return value === undefined ? 0 : viewOf(value).getUint32(0);
}

const [AF_INET, SOCK_DGRAM, SOL_IP, IPT_SO_GET_INFO] = [2, 2, 0, 64];
// Offset of the field `num_entries` and size of `struct ipt_getinfo`, in bytes.
const GETINFO = { entries: 76, bytes: 84 } as const;
/**
 * Number of entries of the iptables table `nat` without rules: one policy for each of its four chains, and
 * the end marker.
 */
const EMPTY_NAT = 5;

/** Returns whether the table `nat` of iptables-legacy contains rules; nftables does not list them. */
function hasLegacyNat(): boolean {
  if (!legacyTables('ipv4').includes('nat')) return false;
  const info = new Uint8Array(GETINFO.bytes);
  new TextEncoder().encodeInto('nat', info);
  const socket = check('open socket', libc.socket(AF_INET, SOCK_DGRAM, 0));
  try {
    check('read table nat', libc.getsockopt(socket, SOL_IP, IPT_SO_GET_INFO, info, Uint32Array.of(info.length)));
  } finally {
    libc.close(socket);
  }
  return new DataView(info.buffer).getUint32(GETINFO.entries, true) > EMPTY_NAT;
}
