import { spawnSync } from 'node:child_process';
import { matchesInterface } from '#contracts/datapath/datapath-options.js';
import { FAMILIES, type Family } from '#contracts/policy/policy-model.js';
import { redirectBit } from '#dataplane/abi/settings.js';
import { routesOfTable } from './routes.js';
import { listRules, type RoutingRule } from './routing-rules.js';

/**
 * The preference of Weir's routing rule, and also the number of its routing table. `bpf/third_party_hooks.h`
 * must use the same number.
 */
const NUMBER = 8353;

const TABLE_LOCAL = 255;
const RTN = { local: 2, throw: 9 } as const;
/** The command of an operator for the routing rules of a family. */
const COMMAND: Readonly<Record<Family, string>> = { ipv4: 'ip', ipv6: 'ip -6' };
const TCP_AND_UDP: readonly number[] = [6, 17];

class DiversionFailure extends Error {
  override readonly name = 'DiversionFailure';
  readonly code = 'diversion_failed';
}

/**
 * Adds a routing rule and a routing table for packets of each family with the redirect bit in their mark.
 * The table makes every address local, so the kernel delivers these packets to the node's own sockets.
 * Without the rule, the kernel would forward the packets, and the guard (Weir's nftables rules) would drop
 * them.
 */
export function makeDiversion(markMask: number, families: readonly Family[]): void {
  if (diversionStands(markMask, families)) return;
  removeDiversion();
  const mark = `0x${redirectBit(markMask).toString(16)}`;
  for (const family of families) {
    ip(family, 'rule', 'add', 'pref', `${NUMBER}`, 'fwmark', `${mark}/${mark}`, 'lookup', `${NUMBER}`);
    ip(family, 'route', 'replace', 'local', 'default', 'dev', 'lo', 'table', `${NUMBER}`);
  }
}

/** Removes Weir's routing rules and tables of both families; does nothing if they do not exist. */
export function removeDiversion(): void {
  for (const family of FAMILIES) {
    while (run(family, ['rule', 'del', 'pref', `${NUMBER}`, 'lookup', `${NUMBER}`]).status === 0);
    run(family, ['route', 'flush', 'table', `${NUMBER}`]);
  }
}

/**
 * Returns whether Weir's routing rule of each family exists, and its routing table contains exactly the one
 * local route. `diversionFaults` checks the rules before Weir's rule.
 */
export function diversionStands(markMask: number, families: readonly Family[]): boolean {
  return families.every((family) => {
    if (!listRules(family).some((rule) => isOwn(rule, redirectBit(markMask)))) return false;
    const routes = routesOfTable(NUMBER, family);
    return (
      routes.length === 1 && routes.every(({ type, length, tos }) => type === RTN.local && length === 0 && tos === 0)
    );
  });
}

/**
 * Returns one sentence for each routing rule that the kernel applies before Weir's rule and that may send a
 * redirected packet from these interfaces elsewhere.
 */
export function diversionFaults(
  markMask: number,
  interfaces: readonly string[],
  families: readonly Family[],
): string[] {
  const bit = redirectBit(markMask);
  return families.flatMap((family) => {
    const rules = listRules(family);
    const own = rules.findIndex((rule) => isOwn(rule, bit));
    const before = rules.slice(0, Math.max(own, 0)).filter((rule) => mayMatch(rule, bit, markMask, interfaces));
    return before
      .filter((rule) => routesElsewhere(rule, family))
      .map(
        ({ preference }) =>
          `${COMMAND[family]} rule ${preference} precedes rule ${NUMBER} and matches packets that the datapath redirects to the node: give it a preference above ${NUMBER}`,
      );
  });
}

function isOwn(rule: RoutingRule, bit: number): boolean {
  const { preference, action, table, mark, mask, byMarkAlone } = rule;
  return preference === NUMBER && action === 'table' && table === NUMBER && mark === bit && mask === bit && byMarkAlone;
}

/**
 * Returns whether a routing rule may match a redirected packet. Such a packet is TCP or UDP. Of the mark
 * bits in `markMask`, it has only `bit`; its other mark bits are unknown.
 */
function mayMatch(rule: RoutingRule, bit: number, markMask: number, interfaces: readonly string[]): boolean {
  if (rule.inverted) return true;
  const { mark, mask, incoming, forOthers, protocol } = rule;
  const hasOtherMark = ((mark ^ bit) & mask & markMask) !== 0;
  const hasOtherInterface = incoming !== undefined && !matchesInterface(interfaces, incoming);
  const hasOtherProtocol = protocol !== undefined && !TCP_AND_UDP.includes(protocol);
  return !hasOtherMark && !hasOtherInterface && !hasOtherProtocol && !forOthers;
}

/**
 * Returns whether a routing rule that matches a redirected packet may decide its route. The table `local`
 * cannot, because no redirected packet has a local destination. If a table has no matching route, the kernel
 * continues with the next rule.
 */
function routesElsewhere({ action, table, goto }: RoutingRule, family: Family): boolean {
  switch (action) {
    case 'nothing':
      return false;
    case 'refuse':
      return true;
    case 'goto':
      return goto > NUMBER;
    case 'table':
      return table !== TABLE_LOCAL && routesOfTable(table, family).some(({ type }) => type !== RTN.throw);
  }
}

function ip(family: Family, ...words: readonly string[]): void {
  const { status, stderr, error } = run(family, words);
  if (status === 0) return;
  throw new DiversionFailure(`${COMMAND[family]} ${words.join(' ')}: ${error?.message ?? stderr.trim()}`);
}

function run(family: Family, words: readonly string[]) {
  return spawnSync('ip', [family === 'ipv4' ? '-4' : '-6', ...words], { encoding: 'utf8' });
}
