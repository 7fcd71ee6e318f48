import { spawnSync } from 'node:child_process';
import { matchesInterface } from '#contracts/datapath-options.js';
import { redirectBit } from '#dataplane/abi/settings.js';
import { routesOfTable } from './routes.js';
import { listRules, type RoutingRule } from './routing-rules.js';

/** Preference of the rule and number of its table; `bpf/third_party_hooks.h` uses the same number. */
const NUMBER = 8353;

const TABLE_LOCAL = 255;
const RTN = { local: 2, throw: 9 } as const;
const TCP_AND_UDP: readonly number[] = [6, 17];

class DiversionFailure extends Error {
  override readonly name = 'DiversionFailure';
  readonly code = 'diversion_failed';
}

/**
 * Makes the node deliver packets with the redirect bit to itself, for any destination: a rule sends them to a
 * separate table, where every address is local. Without it such packets are dropped, because the guard does
 * not forward them.
 */
export function makeDiversion(markMask: number): void {
  if (diversionStands(markMask)) return;
  removeDiversion();
  const mark = `0x${redirectBit(markMask).toString(16)}`;
  ip('rule', 'add', 'pref', `${NUMBER}`, 'fwmark', `${mark}/${mark}`, 'lookup', `${NUMBER}`);
  ip('route', 'replace', 'local', '0.0.0.0/0', 'dev', 'lo', 'table', `${NUMBER}`);
}

/** Does nothing if there is no diversion. */
export function removeDiversion(): void {
  while (run(['rule', 'del', 'pref', `${NUMBER}`, 'lookup', `${NUMBER}`]).status === 0);
  run(['route', 'flush', 'table', `${NUMBER}`]);
}

/**
 * Whether the rule and its route exist, and the table has no other route. `diversionFaults` checks the rules
 * before it.
 */
export function diversionStands(markMask: number): boolean {
  if (!listRules().some((rule) => isOwn(rule, redirectBit(markMask)))) return false;
  const routes = routesOfTable(NUMBER);
  return (
    routes.length === 1 && routes.every(({ type, length, tos }) => type === RTN.local && length === 0 && tos === 0)
  );
}

/**
 * The rules before Weir's own rule that may route a redirected packet of these interfaces elsewhere, one
 * sentence for each.
 */
export function diversionFaults(markMask: number, interfaces: readonly string[]): string[] {
  const rules = listRules();
  const bit = redirectBit(markMask);
  const own = rules.findIndex((rule) => isOwn(rule, bit));
  const before = rules.slice(0, Math.max(own, 0)).filter((rule) => mayMatch(rule, bit, markMask, interfaces));
  return before
    .filter(routesElsewhere)
    .map(
      ({ preference }) =>
        `ip rule ${preference} comes before rule ${NUMBER} and takes packets that are redirected to the node: give it a preference above ${NUMBER}`,
    );
}

function isOwn(rule: RoutingRule, bit: number): boolean {
  const { preference, action, table, mark, mask, byMarkAlone } = rule;
  return preference === NUMBER && action === 'table' && table === NUMBER && mark === bit && mask === bit && byMarkAlone;
}

/**
 * A redirected packet is TCP or UDP. Of `markMask` it has this bit alone; its other mark bits are unknown.
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
 * No redirected packet has a local destination. A table without a matching route leaves the packet to the
 * next rule.
 */
function routesElsewhere({ action, table, goto }: RoutingRule): boolean {
  switch (action) {
    case 'nothing':
      return false;
    case 'refuse':
      return true;
    case 'goto':
      return goto > NUMBER;
    case 'table':
      return table !== TABLE_LOCAL && routesOfTable(table).some(({ type }) => type !== RTN.throw);
  }
}

function ip(...words: readonly string[]): void {
  const { status, stderr, error } = run(words);
  if (status !== 0) throw new DiversionFailure(`ip ${words.join(' ')}: ${error?.message ?? stderr.trim()}`);
}

function run(words: readonly string[]) {
  return spawnSync('ip', ['-4', ...words], { encoding: 'utf8' });
}
