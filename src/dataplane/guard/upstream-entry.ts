import { createHash } from 'node:crypto';
import { exemptBit, natBit, upstreamBits } from '#dataplane/abi/settings.js';
import { ruleComments } from './nftables.js';

/**
 * The conntrack zone of the service plane's connections to servers, in the direction to the server. The
 * number is arbitrary: an operator who uses zones must not use it.
 */
const UPSTREAM_ZONE = 22_341;

/** The chains at the hook `output`: one before conntrack (priority -200), and one directly after it. */
const CHAINS = {
  upstream_zone: { priority: -2_147_483_648, rules: zoneRules },
  upstream_entry: { priority: -199, rules: entryRules },
} as const;
type Chain = keyof typeof CHAINS;
const NAMES = Object.keys(CHAINS) as readonly Chain[];

/**
 * Returns the nft commands for the chains that let the node translate the service plane's connections to
 * servers (SNAT). The two TCP connections of an inspected connection have the same addresses and ports. In
 * the same conntrack zone, both would use one entry, which translates no addresses. So the connection to the
 * server gets a zone of its own. Replies arrive in zone 0, so only the direction to the server has the zone.
 */
export function upstreamEntry(table: string, markMask: number): readonly string[] {
  return NAMES.flatMap((chain) => [
    `add chain inet ${table} ${chain} { type filter hook output priority ${CHAINS[chain].priority}; policy accept; }`,
    `flush chain inet ${table} ${chain}`,
    ...commentedRules(chain, markMask).map((rule) => `add rule inet ${table} ${chain} ${rule}`),
  ]);
}

/** Returns the nft commands that remove the chains of `upstreamEntry`, if they exist. */
export function noUpstreamEntry(table: string): readonly string[] {
  return NAMES.flatMap((chain) => ['add', 'flush', 'delete'].map((verb) => `${verb} chain inet ${table} ${chain}`));
}

/**
 * Returns whether the chains in the kernel have exactly the rules of `upstreamEntry`; if not `wanted`,
 * whether they have none. Compares the rule comments, which contain a hash of the rules.
 */
export function upstreamEntryStands(table: string, markMask: number, wanted: boolean): boolean {
  return NAMES.every((chain) => {
    const expected = wanted ? commentedRules(chain, markMask).map((rule) => /comment "(.*)"$/.exec(rule)?.[1]) : [];
    return JSON.stringify(ruleComments(table, chain) ?? []) === JSON.stringify(expected);
  });
}

/**
 * The chain with these rules must be the first at the hook, because the kernel ignores a second zone for a
 * packet.
 */
function zoneRules(markMask: number): readonly string[] {
  return [`${toServer(markMask)} ct original zone set ${UPSTREAM_ZONE}`];
}

/**
 * Returns the rules of the chain after conntrack, in this order:
 * - A packet to a server that has an entry of its own in conntrack loses `natBit`, and passes.
 * - A packet to the client must open no entry, because packets to the server would then count as replies of
 *   that entry. Such a packet is dropped. This happens only if the client's entry was deleted; the next
 *   packet of the client makes the entry again.
 * - Any other packet to a server is dropped, because it would leave with the address of the client. The
 *   egress hook of a policed interface also drops packets to servers that have `natBit`.
 */
function entryRules(markMask: number): readonly string[] {
  const toClient = `meta l4proto tcp meta mark & ${hex(upstreamBits(markMask))} == ${hex(exemptBit(markMask))}`;
  return [
    `${toServer(markMask)} ct original zone ${UPSTREAM_ZONE} ct direction original meta mark set meta mark & ${hex(~natBit(markMask))} accept`,
    `meta nfproto ipv4 ${toClient} ct state new fib saddr type != local drop`,
    `${toServer(markMask)} drop`,
  ];
}

function toServer(markMask: number): string {
  const bits = hex(upstreamBits(markMask));
  return `meta mark & ${bits} == ${bits}`;
}

function commentedRules(chain: Chain, markMask: number): readonly string[] {
  const { priority, rules } = CHAINS[chain];
  const texts = rules(markMask);
  const hash = createHash('sha256').update(`${priority}${texts.join()}`).digest('hex').slice(0, 12);
  return texts.map((text) => `${text} comment "weir-${hash}"`);
}

/** Returns 32 bits in hexadecimal. `>>> 0` makes the number unsigned, because `~mask` is negative. */
function hex(bits: number): string {
  return `0x${(bits >>> 0).toString(16)}`;
}
