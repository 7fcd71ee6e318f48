import { readFileSync } from 'node:fs';
import type { ReversePath } from '#contracts/datapath/datapath-numbers.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { CLSACT, tcxPrograms } from '#dataplane/attach/attach-program.js';
import { type Interface, listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { type BaseChain, baseChains, legacyTables } from '#dataplane/guard/nftables.js';
import { GUARD_CHAINS, GUARD_TABLE } from '#dataplane/guard/nftables-guard.js';
import { IPV6_SOURCE_CHAIN, SOURCE_CHAIN } from '#dataplane/guard/source-guard.js';
import { attributesIn, NETLINK_ROUTE, NetlinkSocket } from '#libc/netlink.js';
import type { ThirdPartyHook } from './third-party-hooks.js';

/**
 * The policed interfaces and settings for which third-party hooks are searched. `family`: that of the
 * packets. `attachedProgram` returns Weir's BPF program on the ingress of an interface.
 */
export type Place = {
  readonly family: Family;
  readonly policed: readonly Interface[];
  readonly attachedProgram: (
    policed: Interface,
  ) => { readonly programId: number; readonly by: 'tcx' | 'clsact' } | undefined;
  readonly reversePath: ReversePath;
  readonly guardIsInstalled: () => boolean;
  /**
   * The ids of the forward judges (Weir's netfilter programs) if the datapath itself translates the packets
   * of established connections. NAT and conntrack then do not count as third-party hooks. Null if they count.
   */
  readonly judges: readonly number[] | null;
};

/**
 * `FORWARDED`: netfilter's numbers of the hooks that a forwarded packet passes: prerouting, forward and
 * postrouting. `DEVICE_HOOK`: the numbers of the hooks of a network device.
 */
const FORWARDED = [0, 2, 4] as const;
const DEVICE_HOOK = { ingress: 0, egress: 1 } as const;
/**
 * Kernel functions on netfilter hooks that let every forwarded packet pass, so that direct forwarding may
 * skip them. `ip_sabotage_in` is on prerouting on every machine that ever had a bridge, and only keeps
 * bridged packets from passing netfilter twice. The AppArmor functions inspect only packets of the node's own
 * sockets.
 */
const HARMLESS_FUNCTIONS: ReadonlySet<string> = new Set([
  'ip_sabotage_in',
  'apparmor_ip_postroute',
  'apparmor_ipv4_postroute',
  'apparmor_ipv6_postroute',
]);
/**
 * Kernel functions of NAT and conntrack on netfilter hooks. They decide a connection by its first packet, and
 * only translate or count its later packets.
 */
const TRANSLATION_FUNCTIONS: ReadonlySet<string> = new Set([
  'ipv4_conntrack_defrag',
  'ipv4_conntrack_in',
  'ipv4_confirm',
  'nf_confirm',
  'nf_nat_ipv4_in',
  'nf_nat_ipv4_pre_routing',
  'nf_nat_ipv4_out',
]);
const STRICTNESS: Readonly<Record<ReversePath, number>> = { off: 0, loose: 1, strict: 2 };
/**
 * How strict the kernel's reverse path filter is, by the value of `rp_filter`. The value 0 counts as 1
 * (loose), because even with 0 the kernel drops packets whose source is an address of the node.
 */
const STRICTNESS_OF_STACK: Readonly<Record<string, number>> = { 0: 1, 1: 2, 2: 1 };

/**
 * Returns a description of a third-party hook or setting that applies to forwarded packets in the network
 * stack, and that direct forwarding would skip. Returns null if there is no such hook or setting. Throws if
 * the kernel's lists of hooks or settings cannot be read.
 */
export function thirdPartyFilter(place: Place, hooks: readonly ThirdPartyHook[]): string | null {
  const settings = place.family === 'ipv4' ? bySettings(place) : null;
  return settings ?? byLists(place, hooks) ?? byFilters(place);
}

function bySettings({ policed, reversePath }: Place): string | null {
  if (sysctl('ip_forward_update_priority') !== '1') return 'net.ipv4.ip_forward_update_priority is 0';
  const all = Number(sysctl('conf/all/rp_filter'));
  for (const { name } of policed) {
    const strictness = `${Math.max(all, Number(sysctl(`conf/${name}/rp_filter`)))}`;
    if (STRICTNESS[reversePath] >= (STRICTNESS_OF_STACK[strictness] ?? Number.POSITIVE_INFINITY)) continue;
    return strictness === '0'
      ? `the network stack drops packets from its own addresses on ${name}, and reverse_path: ${reversePath} would pass them`
      : `rp_filter ${strictness} of ${name} is stricter than reverse_path: ${reversePath}`;
  }
  return null;
}

function sysctl(name: string): string {
  return readFileSync(`/proc/sys/net/ipv4/${name}`, 'utf8').trim();
}

function byLists(
  { family, policed, guardIsInstalled, judges }: Place,
  hooks: readonly ThirdPartyHook[],
): string | null {
  if (!guardIsInstalled()) return 'the guard is missing';
  const others = hooks.filter((hook) => hook.family === null || hook.family === family);
  // Of the nftables chains, the chain `marks` of the guard (Weir's nftables rules) is the last at prerouting,
  // and the guard's chain `guard` is the first at forward.
  const isChain = ({ symbol }: ThirdPartyHook): boolean => symbol.startsWith('nft_');
  const own = [
    others.findLastIndex((other) => other.kind === 'prerouting' && isChain(other)),
    others.findIndex((other) => other.kind === 'forward' && isChain(other)),
  ];
  const isPoliced = (ifindex: number): boolean => policed.some((found) => found.ifindex === ifindex);
  const isTranslation = ({ kind, id, symbol }: ThirdPartyHook): boolean =>
    judges !== null && (TRANSLATION_FUNCTIONS.has(functionOf(symbol)) || (kind === 'forward' && judges.includes(id)));
  const canDrop = (found: ThirdPartyHook): boolean =>
    !HARMLESS_FUNCTIONS.has(functionOf(found.symbol)) &&
    !isTranslation(found) &&
    ((found.kind !== 'ingress' && found.kind !== 'receiver') || isPoliced(found.id));
  const other = others.find((found, index) => !own.includes(index) && canDrop(found));
  return other === undefined ? null : sentenceOf(other, family, judges !== null);
}

/**
 * Returns the function name in a kernel symbol. The symbol of a module's function is `function [module]`.
 */
function functionOf(symbol: string): string {
  return symbol.split(' ', 1)[0] ?? symbol;
}

/**
 * Returns a description of a third-party hook. `exceptNat`: true if the datapath translates packets itself,
 * so that the description must not name a NAT chain as the reason.
 */
function sentenceOf({ kind, id, symbol }: ThirdPartyHook, family: Family, exceptNat: boolean): string {
  const isShown = ({ type }: BaseChain): boolean => !exceptNat || type !== 'nat';
  switch (kind) {
    case 'prerouting':
    case 'forward':
    case 'postrouting':
      return (
        chainOf(isShown, FORWARDED, 'inet', family === 'ipv4' ? 'ip' : 'ip6') ??
        namedTables(family, exceptNat) ??
        `${symbol} of netfilter's ${kind}`
      );
    case 'ingress':
    case 'egress':
      return `${chainOf(isShown, [DEVICE_HOOK[kind]], 'netdev', 'inet') ?? symbol} on ${kind} of ${nameOf(id)}`;
    case 'receiver':
      return `${symbol}, which receives the packets of ${nameOf(id)}`;
    case 'no_ethernet':
      return `interface ${nameOf(id)}, which is not Ethernet`;
    case 'rule':
      return `${family === 'ipv4' ? 'ip' : 'ip -6'} rule ${id}, which matches more than addresses and ports`;
    case 'xfrm':
      return id === 0 ? 'IPsec, which blocks by default' : `IPsec: ${id} policies`;
  }
}

/**
 * Returns a description of the first third-party nftables base chain on one of these hooks. Operators find a
 * chain by its name more easily than by the kernel function of the hook.
 */
function chainOf(
  isShown: (chain: BaseChain) => boolean,
  hooks: readonly number[],
  ...families: readonly string[]
): string | undefined {
  const found = baseChains().find(
    (chain) =>
      isShown(chain) &&
      hooks.includes(chain.hook) &&
      families.includes(chain.family) &&
      !(
        chain.table === GUARD_TABLE &&
        [...GUARD_CHAINS, SOURCE_CHAIN, IPV6_SOURCE_CHAIN].some((own) => own === chain.name)
      ),
  );
  return found === undefined ? undefined : `nftables chain ${found.family} ${found.table} ${found.name}`;
}

function namedTables(family: Family, exceptNat: boolean): string | undefined {
  const names = legacyTables(family).filter((name) => !exceptNat || name !== 'nat');
  return names.length === 0 ? undefined : `${family === 'ipv4' ? 'iptables' : 'ip6tables'}, table ${names.join(', ')}`;
}

function nameOf(ifindex: number): string {
  return listInterfaces().find((found) => found.ifindex === ifindex)?.name ?? `${ifindex}`;
}

/**
 * Returns a description of the first third-party BPF program or tc filter on the ingress of a policed
 * interface. Direct forwarding skips only a program after Weir's program. But this function does not know the
 * order of the programs, so each program counts.
 */
function byFilters({ policed, attachedProgram }: Place): string | null {
  for (const found of policed) {
    const own = attachedProgram(found);
    const program = tcxPrograms(found.ifindex, 'ingress').find((id) => own?.by !== 'tcx' || id !== own.programId);
    if (program !== undefined) return `BPF program ${program} on ingress of ${found.name}`;
    const [kind] = thirdPartyFilters(found.ifindex);
    if (kind !== undefined) return `a tc filter (${kind}) on ingress of ${found.name}`;
  }
  return null;
}

const RTM_NEWTFILTER = 44;
const RTM_GETTFILTER = 46;
// Size and field offsets of `struct tcmsg`, in bytes.
const TCMSG = { size: 20, ifindex: 4, handle: 8, parent: 12, info: 16 } as const;
const PARENT_INGRESS = 0xffff_fff2;
const TCA_KIND = 1;

/** Returns the kinds of those tc filters on the ingress of an interface that Weir did not attach. */
function thirdPartyFilters(ifindex: number): string[] {
  const request = new DataView(new ArrayBuffer(TCMSG.size));
  request.setInt32(TCMSG.ifindex, ifindex, true);
  request.setUint32(TCMSG.parent, PARENT_INGRESS, true);
  const socket = new NetlinkSocket(NETLINK_ROUTE, 0);
  try {
    return socket.dump(RTM_GETTFILTER, RTM_NEWTFILTER, new Uint8Array(request.buffer)).flatMap((filter) => {
      const handle = filter.getUint32(TCMSG.handle, true);
      const priority = filter.getUint32(TCMSG.info, true) >>> 16;
      const kind = Buffer.from(attributesIn(filter, TCMSG.size).get(TCA_KIND) ?? [])
        .toString('latin1')
        .replace(/\0$/, '');
      // The kernel first lists the classifier with handle 0, and then each filter of that classifier. Ignore
      // both messages for Weir's filter.
      const isWeir = kind === 'bpf' && priority === CLSACT.priority && (handle === CLSACT.handle || handle === 0);
      return isWeir ? [] : [kind];
    });
  } finally {
    socket.close();
  }
}
